/** What is wrong with a source that a tenant registers, and which rights its maker needs. */
import { networkView } from '../../shared/network.ts';
import type { RegisterSource, ToolSource } from '../../shared/tool-source.ts';
import type { Configuration } from '../configuration.ts';
import { addressFault, addressRules } from '../tools/http/address.ts';
import { refusedHeader } from '../tools/http/request.ts';
import type { ToolFault } from '../tools/registered.ts';
import type { OpenedSource } from './shown.ts';

/** Headers that the protocol has for itself. */
const PROTOCOL_HEADERS = [
  'mcp-session-id',
  'mcp-protocol-version',
  'mcp-method',
  'mcp-name',
  'last-event-id',
];

/** Nobody gets tools by a source that they could not register, or call. */
export function kindScopes({ kind }: Pick<RegisterSource, 'kind'>): string[] {
  switch (kind) {
    case 'manifest':
      return ['tools:http'];
    case 'mcp_http':
      return ['tools:mcp'];
    case 'mcp_stdio':
      // It runs what it is told to, in a sandbox.
      return ['tools:mcp', 'tools:shell', 'sessions:write'];
  }
}

export function sourceFault(
  given: RegisterSource,
  { configuration, known }: { configuration: Configuration; known: OpenedSource | undefined },
): ToolFault | undefined {
  if (given.kind === 'mcp_stdio') return keptEnvironmentFault(given, known?.source);
  const rules = addressRules(configuration);
  if (given.kind === 'manifest' && given.url === undefined && !given.webhook)
    return { path: 'url', expected: 'an address, or webhook: true' };
  const addresses: [string, string | undefined][] = [
    ['url', given.url],
    ['oauth.token_url', given.kind === 'mcp_http' ? given.oauth?.token_url : undefined],
  ];
  for (const [path, text] of addresses) {
    if (text === undefined) continue;
    const url = URL.parse(text);
    const fault = url === null ? 'an address' : addressFault(url, rules);
    if (fault !== undefined) return { path, expected: fault };
  }
  const headers = { ...given.headers, ...given.credentials };
  const refused =
    refusedHeader(headers) ??
    Object.keys(headers).find((name) => PROTOCOL_HEADERS.includes(name.toLowerCase()));
  if (refused !== undefined)
    return { path: 'headers', expected: `no header ${refused}: it is the connection's` };
  return keptFault(given, known);
}

/** Nor to another program, or to one that may reach or read something else. */
function keptEnvironmentFault(
  given: Extract<RegisterSource, { kind: 'mcp_stdio' }>,
  before: ToolSource | undefined,
): ToolFault | undefined {
  if (before?.kind !== 'mcp_stdio' || before.env_names.length === 0 || given.env !== undefined)
    return undefined;
  const network = given.network === null ? null : networkView(given.network);
  const now = { ...given, network };
  const changed = (['command', 'args', 'cwd', 'image', 'network'] as const).find(
    (field) => JSON.stringify(now[field]) !== JSON.stringify(before[field]),
  );
  return changed === undefined
    ? undefined
    : { path: 'env', expected: `given again, or {}, where ${changed} is another one` };
}

/** Secrets are not taken along to another host. */
function keptFault(
  given: Exclude<RegisterSource, { kind: 'mcp_stdio' }>,
  known: OpenedSource | undefined,
): ToolFault | undefined {
  const before = known?.source;
  if (before === undefined || before.kind === 'mcp_stdio') return undefined;
  const hasMoved = originOf(before.url) !== originOf(given.url);
  if (given.credentials === undefined && before.credential_names.length > 0 && hasMoved)
    return { path: 'credentials', expected: 'given again, or {}, for an address of another host' };
  if (given.kind !== 'mcp_http' || given.oauth === undefined || given.oauth.client_secret !== undefined)
    return undefined;
  const beforeOauth = before.kind === 'mcp_http' ? before.oauth : undefined;
  const isSame =
    beforeOauth === undefined || originOf(beforeOauth.token_url) === originOf(given.oauth.token_url);
  return isSame ? undefined : { path: 'oauth.client_secret', expected: 'given again, for another host' };
}

function originOf(url: string | undefined): string | undefined {
  return url === undefined ? undefined : URL.parse(url)?.origin;
}
