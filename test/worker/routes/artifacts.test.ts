import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { ArtifactListSchema } from '../../../shared/artifact.ts';
import { sha256Hex } from '../../../shared/digest.ts';
import { toBase64 } from '../../../shared/encoding.ts';
import { api, problemIn, request } from '../harness/api.ts';
import {
  artifactIn,
  bytesAt,
  files,
  get,
  keysOf,
  MIB,
  noise,
  open,
  operator,
  put,
  ring,
  storedBytes,
  tenantWith,
  useArtifactHost,
} from '../harness/artifact-host.ts';
import { eventually } from '../harness/eventually.ts';

useArtifactHost();

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
    await eventually(async () => {
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
    await eventually(async () => {
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
