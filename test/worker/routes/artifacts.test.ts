/** Artifacts by the front door: kept from a session, uploaded, read, removed, counted, and reached by signed addresses. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  type Artifact,
  ArtifactListSchema,
  ArtifactSchema,
  ArtifactUrlSchema,
} from '../../../shared/artifact.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import { fromBase64, toBase64, utf8 } from '../../../shared/encoding.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { DOUBLE_FACTS, type TransferDouble } from '../../fixtures/host-double/transfer-double.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const MIB = 1024 * 1024;

/** The files of every sandbox of the double. */
const files = new Map<string, Uint8Array>();

let host: HostDouble;
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
interface Tenant {
  name: string;
  token: string;
  as: (subject: string) => Promise<string>;
}

/** A tenant of its own for each test. */
async function tenantWith(limits?: object): Promise<Tenant> {
  tenants += 1;
  const name = `keeping-${tenants}`;
  if (limits !== undefined) await limit(name, limits);
  const as = (sub: string) => tokenOf({ claims: { tenant: name, sub, exp: nowS() + 3_600 } });
  return { name, token: await as('alice'), as };
}

async function limit(name: string, limits: object): Promise<void> {
  const set = await api('PUT', `/v1/tenants/${name}/limits`, { ...operator, body: limits });
  expect(set.status, set.text).toBe(200);
}

async function open(token: string): Promise<string> {
  const answer = await api('POST', '/v1/sessions', { token, body: {} });
  return SessionSchema.parse(answer.json).session_id;
}

function artifactIn(answer: ApiAnswer): Artifact {
  expect(answer.status, answer.text).toBe(201);
  return ArtifactSchema.parse(answer.json);
}

const put = (token: string, name: string, raw: BodyInit, headers: HeadersInit = {}) =>
  api('PUT', `/v1/artifacts/${name}/content`, { token, raw, headers });
const get = (token: string, path: string, options: ApiOptions = {}) =>
  api('GET', `/v1/artifacts${path}`, { token, ...options });

async function addressOf(token: string, name: string, body: object): Promise<string> {
  const answer = await api('POST', `/v1/artifacts/${name}/url`, { token, body });
  expect(answer.status, answer.text).toBe(201);
  const { url } = ArtifactUrlSchema.parse(answer.json);
  expect(url.startsWith(`${ORIGIN}/v1/artifact-urls/`)).toBe(true);
  return url.slice(ORIGIN.length);
}

async function storedBytes({ token }: Tenant): Promise<number> {
  return UsageReportSchema.parse((await api('GET', '/v1/usage', { token })).json).now.storage_bytes;
}

async function ring({ name }: Tenant): Promise<void> {
  await runDurableObjectAlarm(env.ARTIFACTS.get(env.ARTIFACTS.idFromName(name)));
}

async function keysOf({ name }: Tenant): Promise<string[]> {
  return (await env.CONTENT.list({ prefix: `artifacts/${name}/` })).objects.map(({ key }) => key);
}

/** Bytes without a pattern that repeats where segments do. */
function noise(length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  let state = 1;
  for (let at = 0; at < length; at += 1) {
    state = (state * 1_103_515_245 + 12_345) & 0x7fff_ffff;
    bytes[at] = state >> 16;
  }
  return bytes;
}

async function bytesAt(token: string, name: string, range?: string): Promise<Uint8Array> {
  const headers = new Headers(range === undefined ? [] : [['Range', range]]);
  const response = await request('GET', `/v1/artifacts/${name}/content`, { token, headers });
  expect(response.status).toBe(range === undefined ? 200 : 206);
  return new Uint8Array(await response.arrayBuffer());
}

describe('a file of a session', () => {
  test('is kept under a name, outlives the session, and is put into another one as it was', async () => {
    const { token } = await tenantWith();
    const first = await open(token);
    const bytes = noise(3 * MIB + 17);
    files.set('out/report.bin', bytes);
    const answer = await api('POST', `/v1/sessions/${first}/artifacts`, {
      token,
      body: { path: 'out/report.bin' },
    });
    const artifact = artifactIn(answer);
    expect(answer.headers.get('Location')).toBe('/v1/artifacts/report.bin');
    expect(artifact).toMatchObject({
      name: 'report.bin',
      bytes: bytes.length,
      sha256: await sha256Hex(bytes),
      source: { session_id: first, path: 'out/report.bin' },
    });
    expect((await api('DELETE', `/v1/sessions/${first}`, { token })).status).toBe(204);
    expect(await bytesAt(token, 'report.bin')).toEqual(bytes);

    const second = await open(token);
    const body = { artifact: 'report.bin', path: 'in/copy.bin', mode: '0600' };
    const written = await api('POST', `/v1/sessions/${second}/files-from`, { token, body });
    expect(written.status, written.text).toBe(201);
    expect(written.json).toMatchObject({ size: bytes.length, sha256: artifact.sha256, created: true });
    expect(files.get('in/copy.bin')).toEqual(bytes);
    const again = await api('POST', `/v1/sessions/${second}/files-from`, { token, body });
    expect(again.status).toBe(200);
  });

  test('that is not there, or whose name is none for an artifact, says so and keeps nothing', async () => {
    const tenant = await tenantWith();
    const sessionId = await open(tenant.token);
    const keep = (body: object) =>
      api('POST', `/v1/sessions/${sessionId}/artifacts`, { token: tenant.token, body });
    expect(problemIn(await keep({ path: 'nowhere' })).code).toBe('not_found');
    expect(problemIn(await keep({ path: 'a/.hidden' })).violations?.[0]?.path).toBe('body.name');
    expect(problemIn(await keep({ path: 'a', name: '../b' })).violations?.[0]?.path).toBe('body.name');
    const missing = { artifact: 'nothing', path: 'x' };
    const from = await api('POST', `/v1/sessions/${sessionId}/files-from`, {
      token: tenant.token,
      body: missing,
    });
    expect(problemIn(from).code).toBe('not_found');
    expect(await keysOf(tenant)).toEqual([]);
    expect(await storedBytes(tenant)).toBe(0);
  });
});

describe('an artifact', () => {
  test('of several parts is read whole and in any stretch', async () => {
    const { token } = await tenantWith();
    const bytes = noise(17 * MIB + 5);
    const { sha256 } = artifactIn(await put(token, 'large', bytes));
    expect(sha256).toBe(await sha256Hex(bytes));
    expect(await sha256Hex(await bytesAt(token, 'large'))).toBe(sha256);
    for (const [first, last] of [
      [0, 0],
      [MIB - 1, MIB],
      [8 * MIB - 3, 9 * MIB + 3],
      [17 * MIB, 17 * MIB + 4],
    ] as const) {
      expect(await bytesAt(token, 'large', `bytes=${first}-${last}`)).toEqual(
        bytes.subarray(first, last + 1),
      );
    }
    expect(await bytesAt(token, 'large', 'bytes=-7')).toEqual(bytes.subarray(-7));
    const beyond = await get(token, '/large/content', { headers: { Range: `bytes=${bytes.length}-` } });
    expect(problemIn(beyond).code).toBe('range_not_satisfiable');
    expect(beyond.headers.get('Content-Range')).toBe(`bytes */${bytes.length}`);
  });

  test('is empty where nothing was sent, and tells its tag', async () => {
    const { token } = await tenantWith();
    const { sha256 } = artifactIn(await put(token, 'empty', ''));
    expect(await bytesAt(token, 'empty')).toEqual(new Uint8Array(0));
    const same = await get(token, '/empty/content', { headers: { 'If-None-Match': `"${sha256}"` } });
    expect(same.status).toBe(304);
    const other = await get(token, '/empty/content', { headers: { 'If-Match': '"other"' } });
    expect(problemIn(other).code).toBe('precondition_failed');
  });

  test('is replaced whole or not at all, and what was replaced leaves the storage', async () => {
    const tenant = await tenantWith();
    const { token } = tenant;
    const first = artifactIn(await put(token, 'name', 'first'));
    const second = artifactIn(await put(token, 'name', 'second'));
    expect(second.artifact_id).not.toBe(first.artifact_id);
    const digest = { 'Content-Digest': `sha-256=:${toBase64(new Uint8Array(32))}:` };
    expect(problemIn(await put(token, 'name', 'third', digest)).code).toBe('digest_mismatch');
    expect((await get(token, '/name/content')).text).toBe('second');
    await vi.waitFor(async () => {
      await ring(tenant);
      expect(await keysOf(tenant)).toEqual([`artifacts/${tenant.name}/${second.artifact_id}`]);
    });
    expect(await storedBytes(tenant)).toBe('second'.length);
  });

  test('is listed by name in pages, shown, and removed once', async () => {
    const { token } = await tenantWith();
    for (const name of ['c', 'a', 'b']) artifactIn(await put(token, name, name));
    const page = ArtifactListSchema.parse((await get(token, '?limit=2')).json);
    expect(page.artifacts.map(({ name }) => name)).toEqual(['a', 'b']);
    const rest = ArtifactListSchema.parse((await get(token, `?cursor=${page.next_cursor}`)).json);
    expect(rest).toMatchObject({ artifacts: [{ name: 'c' }], next_cursor: null });
    expect((await get(token, '/a')).json).toEqual(page.artifacts[0]);
    expect((await api('DELETE', '/v1/artifacts/a', { token })).status).toBe(204);
    expect((await api('DELETE', '/v1/artifacts/a', { token })).status).toBe(404);
    expect((await get(token, '/a/content')).status).toBe(404);
  });

  test('is its subject’s: the same name is another artifact for another one', async () => {
    const tenant = await tenantWith();
    const bob = await tenant.as('bob');
    artifactIn(await put(tenant.token, 'notes', 'alice'));
    expect((await get(bob, '/notes')).status).toBe(404);
    artifactIn(await put(bob, 'notes', 'bob'));
    expect((await get(tenant.token, '/notes/content')).text).toBe('alice');
    expect((await get(bob, '/notes/content')).text).toBe('bob');
  });

  test('is not stored in the clear, and a changed byte breaks what is read', async () => {
    const tenant = await tenantWith();
    artifactIn(await put(tenant.token, 'secret', 'a secret that nobody reads'));
    const [key] = await keysOf(tenant);
    const sealed = new Uint8Array(
      (await (await env.CONTENT.get(key ?? ''))?.arrayBuffer()) ?? new ArrayBuffer(0),
    );
    expect(new TextDecoder().decode(sealed)).not.toContain('secret');
    sealed[20] = (sealed[20] ?? 0) ^ 1;
    await env.CONTENT.put(key ?? '', sealed);
    const response = await request('GET', '/v1/artifacts/secret/content', { token: tenant.token });
    await expect(response.text()).rejects.toThrow();
  });

  test('A34: of a name that is a path is none', async () => {
    const { token } = await tenantWith();
    for (const name of ['..%2fx', '.x', 'a%2Fb', 'a%00', 'a%20b', 'x'.repeat(129), '%2e%2e']) {
      const answer = await put(token, name, 'x');
      expect([400, 404, 405], `${name}: ${answer.text}`).toContain(answer.status);
    }
    expect(ArtifactListSchema.parse((await get(token, '')).json).artifacts).toEqual([]);
  });
});

describe('the storage of a tenant', () => {
  test('is never passed, however many uploads come at once, and a removal gives its bytes back', async () => {
    const tenant = await tenantWith({ tenant: { storage_bytes: 5_000 } });
    const { token } = tenant;
    const sized = { 'Content-Length': '1000' };
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) => put(token, `n${index}`, 'x'.repeat(1_000), sized)),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(5);
    for (const refused of answers.filter(({ status }) => status !== 201)) {
      expect(problemIn(refused)).toMatchObject({
        code: 'quota_exceeded',
        limit: { name: 'storage_bytes', scope: 'tenant', limit: 5_000 },
      });
    }
    expect(await storedBytes(tenant)).toBe(5_000);
    const [{ name } = { name: '' }] = ArtifactListSchema.parse((await get(token, '?limit=1')).json).artifacts;
    await api('DELETE', `/v1/artifacts/${name}`, { token });
    await vi.waitFor(async () => {
      await ring(tenant);
      expect(await storedBytes(tenant)).toBe(4_000);
    });
    expect((await put(token, 'last', 'x'.repeat(1_001), { 'Content-Length': '1001' })).status).toBe(429);
    expect((await put(token, 'last', 'x'.repeat(1_000), sized)).status).toBe(201);
  });

  test('of a subject has a limit of its own, and an upload that is too long for what it said is refused', async () => {
    const tenant = await tenantWith({ subject: { storage_bytes: 10 } });
    const sized = (bytes: number) => ({ 'Content-Length': String(bytes) });
    expect((await put(tenant.token, 'a', 'x'.repeat(10), sized(10))).status).toBe(201);
    const refused = problemIn(await put(tenant.token, 'b', 'x', sized(1)));
    expect(refused.limit).toMatchObject({ name: 'storage_bytes', scope: 'subject', used: 10 });
    expect((await put(await tenant.as('bob'), 'b', 'x'.repeat(10), sized(10))).status).toBe(201);
  });
});

describe('retention', () => {
  test('lets an artifact go when its days are over, and no sooner', async () => {
    const tenant = await tenantWith();
    const path = `/v1/tenants/${tenant.name}/retention`;
    const nothing = { artifacts_days: null, executions_days: null, outputs_days: null };
    expect((await api('GET', path, operator)).json).toEqual(nothing);
    const set = await api('PUT', path, { ...operator, body: { artifacts_days: 3 } });
    expect(set.json).toEqual({ ...nothing, artifacts_days: 3 });
    artifactIn(await put(tenant.token, 'old', 'old'));
    const at = (days: number) => Date.now() + days * 86_400_000;
    vi.useFakeTimers({ toFake: ['Date'], now: at(2.9) });
    await ring(tenant);
    expect(await keysOf(tenant)).toHaveLength(1);
    vi.setSystemTime(at(0.2));
    await ring(tenant);
    expect(await keysOf(tenant)).toEqual([]);
    vi.useRealTimers();
    expect((await get(tenant.token, '/old')).status).toBe(404);
  });

  test('is a number of days, by the operator only', async () => {
    const path = '/v1/tenants/some/retention';
    for (const setting of ['artifacts_days', 'executions_days', 'outputs_days']) {
      for (const days of [0, 1.5, -1, '3', 3_651]) {
        const answer = await api('PUT', path, { ...operator, body: { [setting]: days } });
        expect(problemIn(answer).violations?.[0]?.path).toBe(`body.${setting}`);
      }
    }
    const { token } = await tenantWith();
    expect((await api('PUT', path, { token, body: {} })).status).toBe(403);
  });
});

describe('a signed address', () => {
  test('gives the artifact without a token, whole or a range of it', async () => {
    const { token } = await tenantWith();
    artifactIn(await put(token, 'shared.txt', 'for whoever has the address'));
    const url = await addressOf(token, 'shared.txt', { method: 'GET', expires_in_s: 60 });
    const answer = await api('GET', url);
    expect([answer.status, answer.text]).toEqual([200, 'for whoever has the address']);
    const part = await request('GET', url, { headers: { Range: 'bytes=4-10' } });
    expect([part.status, await part.text()]).toEqual([206, 'whoever']);
    const head = await request('HEAD', url);
    expect([head.status, head.headers.get('Content-Length')]).toEqual([200, '27']);
  });

  test('takes one upload of at most its size, without a token', async () => {
    const { token } = await tenantWith();
    const url = await addressOf(token, 'given', { method: 'PUT', max_bytes: 10 });
    const over = await api('PUT', url, { raw: 'x'.repeat(11), headers: { 'Content-Length': '11' } });
    expect(problemIn(over).code).toBe('payload_too_large');
    const artifact = artifactIn(await api('PUT', url, { raw: 'x'.repeat(10) }));
    expect(artifact).toMatchObject({ name: 'given', bytes: 10, source: null });
    expect(problemIn(await api('PUT', url, { raw: 'y' })).code).toBe('not_found');
    expect((await get(token, '/given/content')).text).toBe('x'.repeat(10));
  });

  test('that is given more than its size without saying so keeps nothing', async () => {
    const tenant = await tenantWith();
    const url = await addressOf(tenant.token, 'given', { method: 'PUT', max_bytes: 10 });
    const raw = new ReadableStream({
      start(controller) {
        for (let piece = 0; piece < 3; piece += 1) controller.enqueue(utf8('12345678'));
        controller.close();
      },
    });
    expect(problemIn(await api('PUT', url, { raw })).code).toBe('payload_too_large');
    expect((await get(tenant.token, '/given')).status).toBe(404);
    await vi.waitFor(async () => {
      await ring(tenant);
      expect(await storedBytes(tenant)).toBe(0);
    });
  });

  test('is good for nothing but what it says: everything else answers like a missing artifact', async () => {
    const tenant = await tenantWith();
    const { token } = tenant;
    artifactIn(await put(token, 'one', 'one'));
    artifactIn(await put(token, 'two', 'two'));
    const read = await addressOf(token, 'one', { method: 'GET', expires_in_s: 60 });
    const write = await addressOf(token, 'one', { method: 'PUT', max_bytes: 3 });
    const missing = { ...problemIn(await api('GET', '/v1/artifact-urls/x')), request_id: '' };
    expect(missing.code).toBe('not_found');
    const isMissing = async (method: string, url: string) => {
      const answer = await api(method, url, method === 'PUT' ? { raw: 'bad' } : {});
      expect({ ...problemIn(answer), request_id: '' }, `${method} ${url}`).toEqual(missing);
    };
    // Another method.
    await isMissing('PUT', read);
    await isMissing('GET', write);
    // One character of it changed, also those that decoders read as the same.
    const start = '/v1/artifact-urls/'.length;
    for (let at = start; at < read.length; at += 7) await isMissing('GET', flipped(read, at));
    await isMissing('GET', flipped(read, read.length - 1));
    // Claims of another artifact, tenant, subject, method or size under the same signature.
    for (const change of [{ name: 'two' }, { tenant: 'acme' }, { sub: 'bob' }, { exp: nowS() + 9_000 }]) {
      await isMissing('GET', withClaims(read, change));
    }
    await isMissing('PUT', withClaims(write, { max_bytes: 1_000 }));
    await isMissing('PUT', withClaims(read, { method: 'PUT', max_bytes: 1_000 }));
    // Of an artifact that was replaced or removed since.
    artifactIn(await put(token, 'one', 'new'));
    await isMissing('GET', read);
    const ofTwo = await addressOf(token, 'two', { method: 'GET' });
    await api('DELETE', '/v1/artifacts/two', { token });
    await isMissing('GET', ofTwo);
    // The innocent twins.
    expect((await api('GET', await addressOf(token, 'one', { method: 'GET' }))).text).toBe('new');
    expect((await api('PUT', write, { raw: 'end' })).status).toBe(201);
  });

  test('ends when its time is over', async () => {
    const { token } = await tenantWith();
    artifactIn(await put(token, 'brief', 'brief'));
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const read = await addressOf(token, 'brief', { method: 'GET', expires_in_s: 30 });
    const write = await addressOf(token, 'brief', { method: 'PUT', expires_in_s: 30, max_bytes: 9 });
    vi.setSystemTime(Date.now() + 29_000);
    expect((await api('GET', read)).status).toBe(200);
    vi.setSystemTime(Date.now() + 2_000);
    expect(problemIn(await api('GET', read)).code).toBe('not_found');
    expect(problemIn(await api('PUT', write, { raw: 'late' })).code).toBe('not_found');
  });

  test('ends with the token that asked for it, its subject, or its tenant', async () => {
    const barredBy = async (bar: (tenant: Tenant, jti: string) => Promise<ApiAnswer>) => {
      const tenant = await tenantWith();
      const jti = crypto.randomUUID();
      const token = await tokenOf({ claims: { tenant: tenant.name, jti } });
      artifactIn(await put(token, 'x', 'x'));
      const url = await addressOf(token, 'x', { method: 'GET' });
      expect((await api('GET', url)).status).toBe(200);
      expect((await bar(tenant, jti)).status).toBe(204);
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
      expect(problemIn(await api('GET', url)).code).toBe('not_found');
      vi.useRealTimers();
    };
    const revoke = (tenant: Tenant, body: object) =>
      api('POST', `/v1/tenants/${tenant.name}/revoked-tokens`, { ...operator, body });
    await barredBy((tenant, jti) => revoke(tenant, { jti }));
    await barredBy((tenant) => revoke(tenant, { subject: 'alice' }));
    await barredBy((tenant) =>
      api('POST', `/v1/tenants/${tenant.name}/status`, { ...operator, body: { disabled: true } }),
    );
  });

  test('is a kind of token of its own: no other door takes it, and it takes no other token', async () => {
    const tenant = await tenantWith();
    artifactIn(await put(tenant.token, 'x', 'x'));
    const url = await addressOf(tenant.token, 'x', { method: 'GET' });
    const token = url.slice('/v1/artifact-urls/'.length);
    for (const [method, path] of [
      ['GET', '/v1/artifacts/x'],
      ['GET', '/v1/hosts'],
      ['GET', `/hosts/v1/snapshots/snp_${'A'.repeat(22)}/manifest`],
    ] as const) {
      expect((await api(method, path, { token })).status, path).toBe(401);
    }
    const { transferKey, artifactUrlKey, origin } = await configurationOf(env);
    const claims = { tenant: tenant.name, sub: 'alice', name: 'x', method: 'GET', token: 't', key: null };
    const artifact = ArtifactSchema.parse((await get(tenant.token, '/x')).json).artifact_id;
    const signed = (key: CryptoKey, header: { typ: string }, audience = 'artifacts') =>
      new SignJWT({ ...claims, artifact })
        .setProtectedHeader({ alg: 'HS256', ...header })
        .setIssuer(origin)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime('60s')
        .sign(key);
    const typ = 'artifact-url+jwt';
    const twin = await signed(artifactUrlKey, { typ });
    expect((await api('GET', `/v1/artifact-urls/${twin}`)).status).toBe(200);
    for (const foreign of [
      await signed(transferKey, { typ }),
      await signed(artifactUrlKey, { typ: 'at+jwt' }),
      await signed(artifactUrlKey, { typ: 'snapshot-transfer+jwt' }),
      await signed(artifactUrlKey, { typ }, 'snapshots'),
      tenant.token,
      OPERATOR_TOKEN,
      host.certificate,
    ]) {
      expect((await api('GET', `/v1/artifact-urls/${foreign}`)).status).toBe(404);
    }
  });

  test('is given to whoever has the scope of what it does, for a time and a size that are asked for', async () => {
    const tenant = await tenantWith();
    artifactIn(await put(tenant.token, 'x', 'x'));
    const reader = await tokenOf({ claims: { tenant: tenant.name, scope: 'sessions:read' } });
    const ask = (token: string, body: object, name = 'x') =>
      api('POST', `/v1/artifacts/${name}/url`, { token, body });
    expect((await ask(reader, { method: 'GET' })).status).toBe(201);
    expect(problemIn(await ask(reader, { method: 'PUT', max_bytes: 1 })).code).toBe('insufficient_scope');
    expect((await ask(tenant.token, { method: 'GET' }, 'nothing')).status).toBe(404);
    for (const [body, path] of [
      [{ method: 'GET', expires_in_s: 901 }, 'body.expires_in_s'],
      [{ method: 'GET', expires_in_s: 0 }, 'body.expires_in_s'],
      [{ method: 'DELETE' }, 'body.method'],
      [{ method: 'PUT' }, 'body.max_bytes'],
      [{ method: 'GET', max_bytes: 5 }, 'body.max_bytes'],
    ] as const) {
      expect(problemIn(await ask(tenant.token, body)).violations?.map((found) => found.path)).toContain(path);
    }
  });
});

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

function flipped(url: string, at: number): string {
  const before = ALPHABET.indexOf(url[at] ?? '');
  const other = before === -1 ? 'A' : (ALPHABET[before ^ 1] ?? 'A');
  return `${url.slice(0, at)}${other}${url.slice(at + 1)}`;
}

function withClaims(url: string, change: object): string {
  const [header = '', claims = '', signature = ''] = url.split('.');
  const parsed: unknown = JSON.parse(atob(claims.replaceAll('-', '+').replaceAll('_', '/')));
  const changed = btoa(JSON.stringify(Object.assign({}, parsed, change)));
  const encoded = changed.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  return `${header}.${encoded}.${signature}`;
}
