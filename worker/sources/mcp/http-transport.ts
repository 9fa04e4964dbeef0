/** The way to an MCP server over Streamable HTTP. */
import { StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client';
import { MAX_SOURCE_BYTES, type ToolSource } from '../../../shared/tool-source.ts';
import type { AddressRules } from '../../tools/http/address.ts';
import { boundedFetch } from '../../tools/http/bounded-fetch.ts';
import { CLIENT_SECRET, secretsOf } from '../secrets.ts';
import { ClientCredentialsTokens } from './client-credentials.ts';
import { exactFetch } from './exact-fetch.ts';

/** Of one answer; a stream of them is one. */
const MAX_ANSWER_BYTES = 2 * MAX_SOURCE_BYTES;
const RECONNECTION = {
  initialReconnectionDelay: 500,
  maxReconnectionDelay: 5_000,
  reconnectionDelayGrowFactor: 2,
  maxRetries: 2,
};

export function httpTransport(
  source: Extract<ToolSource, { kind: 'mcp_http' }>,
  { secrets, rules }: { secrets: Record<string, string>; rules: AddressRules },
): Transport {
  const fetch = boundedFetch(rules, MAX_ANSWER_BYTES);
  const secret = secrets[CLIENT_SECRET];
  const { oauth } = source;
  const authProvider =
    oauth === undefined
      ? undefined
      : new ClientCredentialsTokens(
          { ...oauth, server: source.url, ...(secret === undefined ? {} : { client_secret: secret }) },
          fetch,
        );
  return new StreamableHTTPClientTransport(new URL(source.url), {
    fetch: exactFetch(fetch),
    requestInit: {
      headers: { 'user-agent': 'sandgate', ...source.headers, ...secretsOf(secrets, 'header') },
    },
    reconnectionOptions: RECONNECTION,
    ...(authProvider === undefined ? {} : { authProvider }),
  });
}
