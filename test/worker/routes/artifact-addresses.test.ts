import { env } from 'cloudflare:workers';
import { SignJWT } from 'jose';
import { describe, expect, test, vi } from 'vitest';
import { ArtifactSchema } from '../../../shared/artifact.ts';
import { utf8 } from '../../../shared/encoding.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn, request } from '../harness/api.ts';
import {
  addressOf,
  artifactIn,
  get,
  host,
  operator,
  put,
  ring,
  storedBytes,
  type Tenant,
  tenantWith,
  useArtifactHost,
} from '../harness/artifact-host.ts';
import { eventually } from '../harness/eventually.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

useArtifactHost();

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
    await eventually(async () => {
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
