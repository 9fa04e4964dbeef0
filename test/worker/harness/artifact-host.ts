/** Tenants of the tests that keep artifacts, and a host whose sandboxes have files. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, expect, vi } from 'vitest';
import { type Artifact, ArtifactSchema, ArtifactUrlSchema } from '../../../shared/artifact.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import { fromBase64 } from '../../../shared/encoding.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { DOUBLE_FACTS, type TransferDouble } from '../../fixtures/host-double/transfer-double.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';
import { type ApiAnswer, type ApiOptions, api, request } from './api.ts';
import { connectFakeHost } from './fake-host.ts';

export const operator = { token: OPERATOR_TOKEN };
export const MIB = 1024 * 1024;

/** The files of every sandbox of the double. */
export const files = new Map<string, Uint8Array>();

export let host: HostDouble;
export function useArtifactHost(): void {
  beforeAll(async () => {
    host = await connectFakeHost({ capacity: 1_000 });
    host.transferScript = serveFiles;
  });
  afterEach(() => {
    vi.useRealTimers();
    expect(host.failures).toEqual([]);
  });
  afterAll(() => {
    host.close();
  });
}

async function serveFiles(transfer: TransferDouble): Promise<void> {
  const { request: asked } = transfer;
  if (asked.operation !== 'read' && asked.operation !== 'write') return transfer.failed('file_refused');
  const path = new TextDecoder().decode(fromBase64(asked.path));
  if (asked.operation === 'read') {
    const bytes = files.get(path);
    if (bytes === undefined) return transfer.failed('not_found');
    transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: bytes.length }, length: bytes.length });
    for (let at = 0; at < bytes.length; at += 65_536) await transfer.data(bytes.subarray(at, at + 65_536));
    return transfer.done({ bytes: bytes.length });
  }
  transfer.head();
  while (!transfer.isWhole && !transfer.isCancelled) {
    const before = transfer.receivedBytes;
    await transfer.until(() => transfer.receivedBytes > before || transfer.isWhole || transfer.isCancelled);
    transfer.taken();
  }
  const bytes = new Uint8Array(
    await new Blob(transfer.received.map((piece) => new Uint8Array(piece))).arrayBuffer(),
  );
  const sha256 = await sha256Hex(bytes);
  if (transfer.isCancelled || sha256 !== asked.sha256) return transfer.failed('digest_mismatch');
  const created = !files.has(path);
  files.set(path, bytes);
  transfer.done({ bytes: bytes.length, created, sha256, facts: { ...DOUBLE_FACTS, size: bytes.length } });
}

let tenants = 0;
export interface Tenant {
  name: string;
  token: string;
  as: (subject: string) => Promise<string>;
}

/** A tenant of its own for each test. */
export async function tenantWith(limits?: object): Promise<Tenant> {
  tenants += 1;
  const name = `keeping-${tenants}`;
  if (limits !== undefined) await limit(name, limits);
  const as = (sub: string) => tokenOf({ claims: { tenant: name, sub, exp: nowS() + 3_600 } });
  return { name, token: await as('alice'), as };
}

export async function limit(name: string, limits: object): Promise<void> {
  const set = await api('PUT', `/v1/tenants/${name}/limits`, { ...operator, body: limits });
  expect(set.status, set.text).toBe(200);
}

export async function open(token: string): Promise<string> {
  const answer = await api('POST', '/v1/sessions', { token, body: {} });
  return SessionSchema.parse(answer.json).session_id;
}

export function artifactIn(answer: ApiAnswer): Artifact {
  expect(answer.status, answer.text).toBe(201);
  return ArtifactSchema.parse(answer.json);
}

export const put = (token: string, name: string, raw: BodyInit, headers: HeadersInit = {}) =>
  api('PUT', `/v1/artifacts/${name}/content`, { token, raw, headers });
export const get = (token: string, path: string, options: ApiOptions = {}) =>
  api('GET', `/v1/artifacts${path}`, { token, ...options });

export async function addressOf(token: string, name: string, body: object): Promise<string> {
  const answer = await api('POST', `/v1/artifacts/${name}/url`, { token, body });
  expect(answer.status, answer.text).toBe(201);
  const { url } = ArtifactUrlSchema.parse(answer.json);
  expect(url.startsWith(`${ORIGIN}/v1/artifact-urls/`)).toBe(true);
  return url.slice(ORIGIN.length);
}

export async function storedBytes({ token }: Tenant): Promise<number> {
  return UsageReportSchema.parse((await api('GET', '/v1/usage', { token })).json).now.storage_bytes;
}

export async function ring({ name }: Tenant): Promise<void> {
  await runDurableObjectAlarm(env.ARTIFACTS.get(env.ARTIFACTS.idFromName(name)));
}

export async function keysOf({ name }: Tenant): Promise<string[]> {
  return (await env.CONTENT.list({ prefix: `artifacts/${name}/` })).objects.map(({ key }) => key);
}

/** Bytes without a pattern that repeats where segments do. */
export function noise(length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  let state = 1;
  for (let at = 0; at < length; at += 1) {
    state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff;
    bytes[at] = state >> 16;
  }
  return bytes;
}

export async function bytesAt(token: string, name: string, range?: string): Promise<Uint8Array> {
  const headers = new Headers(range === undefined ? [] : [['Range', range]]);
  const response = await request('GET', `/v1/artifacts/${name}/content`, { token, headers });
  expect(response.status).toBe(range === undefined ? 200 : 206);
  return new Uint8Array(await response.arrayBuffer());
}
