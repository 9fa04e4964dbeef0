/** What a source says of its tools, as a report to the catalogue. */
import * as z from 'zod';
import { sha256Hex } from '../../../shared/digest.ts';
import type { SourceState } from '../../../shared/tool-source.ts';
import type { Configuration } from '../../configuration.ts';
import { sealSecrets } from '../../secrets/sealed-secrets.ts';
import { fetchManifest } from '../../sources/fetch-manifest.ts';
import { manifestTools } from '../../sources/manifest.ts';
import { mcpTools } from '../../sources/mcp/tools.ts';
import { secretsOf } from '../../sources/secrets.ts';
import { ServerFault } from '../../sources/server-fault.ts';
import type { SourceTools } from '../../sources/source-tool.ts';
import { addressRules } from '../../tools/http/address.ts';
import type { PutTool, StoredSource } from '../catalogue/port.ts';
import type { ListedServer } from './connections.ts';
import type { Seen } from './store.ts';

export interface Asked extends Omit<StoredSource, 'secrets'> {
  tenant: string;
  secrets: Record<string, string>;
  seen: Seen;
  configuration: Configuration;
}

export interface Found {
  state: Partial<SourceState>;
  /** Absent where they are as before. */
  tools?: PutTool[];
  seen: Seen;
}

export async function askManifest(asked: Asked): Promise<Found> {
  const { source, seen, configuration } = asked;
  if (source.kind !== 'manifest' || source.url === undefined)
    return { state: { status: seen.digest === null ? 'pending' : 'ready' }, seen };
  const fetched = await fetchManifest({
    url: source.url,
    headers: source.headers,
    credentials: secretsOf(asked.secrets, 'header'),
    etag: seen.etag,
    rules: addressRules(configuration),
  });
  if (fetched === 'unchanged') return { state: ready(), seen: { ...seen, failures: 0 } };
  return foundIn(asked, fetched.document, fetched.etag);
}

const PushedSchema = z.looseObject({ data: z.looseObject({ tools: z.array(z.unknown()) }) });

/** Undefined where the message does not hold the manifest itself: then it is fetched. */
export async function takeManifest(asked: Asked, message: unknown): Promise<Found | undefined> {
  const pushed = PushedSchema.safeParse(message);
  return pushed.success ? foundIn(asked, pushed.data.data, null) : undefined;
}

async function foundIn(asked: Asked, document: unknown, etag: string | null): Promise<Found> {
  const { source, rights, secrets, tenant, configuration } = asked;
  const digest = await sha256Hex(JSON.stringify(document));
  const seen = { ...asked.seen, etag, digest, failures: 0 };
  if (digest === asked.seen.digest) return { state: ready(), seen };
  const credentials = secretsOf(secrets, 'header');
  const names = Object.keys(credentials);
  const origin =
    source.kind === 'manifest' && source.url !== undefined ? new URL(source.url).origin : undefined;
  const read = await manifestTools(source, document, {
    origin,
    rights: new Set(rights),
    rules: addressRules(configuration),
    credentialsFor: async (name) =>
      names.length === 0
        ? null
        : {
            names,
            sealed: await sealSecrets(configuration.secretsKey, { tenant, holder: name }, credentials),
          },
  });
  if (read === undefined) throw new ServerFault('it is no manifest: {"tools": [...]} was expected');
  return { ...found(read), seen };
}

export async function askServer(
  asked: Asked,
  { tools, server, fault, isTorn }: ListedServer,
): Promise<Found> {
  const digest = await sha256Hex(JSON.stringify(tools));
  const state = { ...(fault === null ? ready() : degraded(fault)), server };
  const failures = fault === null ? 0 : asked.seen.failures + 1;
  // A list that broke off takes the place of none that was there before.
  const isKept = digest === asked.seen.digest || (isTorn && asked.seen.digest !== null);
  if (isKept) return { state, seen: { ...asked.seen, failures } };
  const read = found(await mcpTools(asked.source, tools, addressRules(asked.configuration)));
  return { ...read, state: { ...read.state, ...state }, seen: { ...asked.seen, digest, failures } };
}

function found({ puts, problems }: SourceTools): Pick<Found, 'state' | 'tools'> {
  return { state: { ...ready(), problems }, tools: puts };
}

function ready(): Partial<SourceState> {
  return { status: 'ready', last_error: null, refreshed_at: new Date().toISOString() };
}

/** Some of its tools are there, and perhaps not all. */
function degraded(message: string): Partial<SourceState> {
  const at = new Date().toISOString();
  return { status: 'degraded', last_error: { message, at }, refreshed_at: at };
}
