import { listDurableObjectIds, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { afterEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ApiKeySchema, IssuedTokenSchema, NewApiKeySchema, newApiKey } from '../../../shared/api-key.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const MINUTE_MS = 60_000;
afterEach(() => vi.useRealTimers());

const SCOPES = ['sessions:read', 'sessions:write'];

async function create(tenant: string, more: object = {}) {
  const body = { subject: 'robot', scopes: SCOPES, ...more };
  const answer = await api('POST', `/v1/tenants/${tenant}/api-keys`, { ...operator, body });
  expect(answer.status, answer.text).toBe(201);
  return NewApiKeySchema.parse(answer.json);
}

const exchange = (apiKey: string, more: object = {}) =>
  api('POST', '/v1/tokens', { body: { api_key: apiKey, ...more } });

async function tokenFor(apiKey: string, more: object = {}): Promise<string> {
  const answer = await exchange(apiKey, more);
  expect(answer.status, answer.text).toBe(200);
  return IssuedTokenSchema.parse(answer.json).access_token;
}

const list = (token: string) => api('GET', '/v1/sessions', { token });

function laterBy(ms: number): void {
  const now = Date.now() + ms;
  vi.useRealTimers();
  vi.useFakeTimers({ toFake: ['Date'], now });
}

describe('an API key', () => {
  test('is exchanged for a short token that acts for its subject, with its scopes and no more', async () => {
    const key = await create('keyed', { name: 'nightly' });
    expect(key.api_key).toMatch(/^sgk_keyed~/);
    const answer = await exchange(key.api_key);
    expect(answer.headers.get('Cache-Control')).toBe('no-store');
    const issued = IssuedTokenSchema.parse(answer.json);
    expect(issued).toMatchObject({ token_type: 'Bearer', expires_in: 900, scope: SCOPES.join(' ') });
    const claims = decodeJwt(issued.access_token);
    expect(claims).toMatchObject({
      iss: ORIGIN,
      aud: ORIGIN,
      sub: 'robot',
      tenant: 'keyed',
      client_id: key.key_id,
    });
    expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(900);
    expect(decodeProtectedHeader(issued.access_token)).toMatchObject({ alg: 'Ed25519', typ: 'at+jwt' });
    expect((await list(issued.access_token)).status).toBe(200);
    expect(problemIn(await api('GET', '/v1/usage', { token: issued.access_token })).code).toBe(
      'insufficient_scope',
    );
    laterBy(16 * MINUTE_MS);
    expect((await list(issued.access_token)).status).toBe(401);
  });

  test('gives narrower tokens, and never wider ones', async () => {
    const { api_key: apiKey } = await create('narrow');
    const token = await tokenFor(apiKey, { scope: 'sessions:read', lifetime_s: 60 });
    expect(decodeJwt(token).scope).toBe('sessions:read');
    const wider = await exchange(apiKey, { scope: 'sessions:read tools:python' });
    expect(problemIn(wider)).toMatchObject({ code: 'insufficient_scope' });
    expect((await exchange(apiKey, { lifetime_s: 3_601 })).status).toBe(400);
  });

  test('holds its tokens to its tool policy, which an exchange narrows and never widens', async () => {
    const policy = {
      tools: ['python', 'file'],
      categories: ['code', 'files', 'math'],
      arguments: [{ tool: 'file', argument: '/path', path_prefixes: ['/workspace/in'] }],
    };
    const key = await create('policies', { tool_policy: policy });
    expect(key.tool_policy).toEqual({
      ...policy,
      arguments: [{ ...policy.arguments[0], required: true }],
    });
    expect(decodeJwt(await tokenFor(key.api_key)).tool_policy).toEqual(key.tool_policy);
    const rule = { category: 'code', argument: '/code', one_of: ['1'], required: true };
    const asked = { tools: ['python', 'shell'], categories: ['math/sums', 'code', 'crm'], arguments: [rule] };
    const answer = await exchange(key.api_key, { tool_policy: asked });
    expect(IssuedTokenSchema.parse(answer.json).tool_policy).toEqual({
      tools: ['python'],
      categories: ['code', 'math/sums'],
      arguments: [...(key.tool_policy?.arguments ?? []), rule],
    });
    const long = { tools: Array.from({ length: 60 }, (_, n) => `${n}`.padStart(60, '0')) };
    const rules = Array.from({ length: 30 }, (_, n) => ({ ...rule, one_of: [`${n}`.padStart(20, '0')] }));
    const { api_key: full } = await create('policies', { tool_policy: long });
    expect(problemIn(await exchange(full, { tool_policy: { arguments: rules } }))).toMatchObject({
      code: 'invalid_request',
      violations: [{ path: 'body.tool_policy' }],
    });
  });

  test('with the longest tool policy gives tokens that are taken', async () => {
    const longest = { tools: Array.from({ length: 190 }, (_, n) => `tool ${n}`) };
    const { api_key: key } = await create('policies', { tool_policy: longest });
    expect((await list(await tokenFor(key))).status).toBe(200);
    const tooMany = { tools: [...longest.tools, 'one', 'more'] };
    const body = { subject: 'robot', scopes: SCOPES, tool_policy: tooMany };
    const refused = await api('POST', '/v1/tenants/policies/api-keys', { ...operator, body });
    expect(problemIn(refused).code).toBe('invalid_request');
  });

  test('has no tool policy that is longer in bytes than it looks, nor one that finds no room in a token', async () => {
    const wide = { tools: Array.from({ length: 20 }, (_, n) => `${n}`.padStart(90, '界')) };
    const body = { subject: 'robot', scopes: SCOPES, tool_policy: wide };
    const refused = await api('POST', '/v1/tenants/policies/api-keys', { ...operator, body });
    expect(problemIn(refused).code).toBe('invalid_request');
    const scopes = Array.from({ length: 20 }, (_, n) => `${n}`.padStart(100, 's'));
    const long = { tools: Array.from({ length: 33 }, (_, n) => `${n}`.padStart(120, '0')) };
    const { api_key: key } = await create('policies', { tool_policy: long, scopes });
    expect(problemIn(await exchange(key)).violations).toMatchObject([{ path: 'body.scope' }]);
    expect((await list(await tokenFor(key, { scope: scopes[0] }))).status).not.toBe(401);
  });

  test('is kept as a digest, and shown once', async () => {
    const key = await create('digests');
    const listed = await api('GET', '/v1/tenants/digests/api-keys', operator);
    const { api_keys: keys } = z.object({ api_keys: z.array(ApiKeySchema) }).parse(listed.json);
    expect(keys).toMatchObject([
      { key_id: key.key_id, subject: 'robot', scopes: SCOPES, last_used_on: null },
    ]);
    const secret = key.api_key.split('~')[2] ?? '';
    expect(listed.text).not.toContain(secret);
    const stub = env.TENANT.get(env.TENANT.idFromName('digests'));
    await runInDurableObject(stub, (_instance, state) => {
      const rows = JSON.stringify(state.storage.sql.exec('SELECT * FROM api_key').toArray());
      expect(rows).toContain(key.key_id);
      expect(rows).not.toContain(secret);
    });
    await tokenFor(key.api_key);
    const used = await api('GET', '/v1/tenants/digests/api-keys', operator);
    expect(used.text).toContain(new Date().toISOString().slice(0, 10));
  });

  test('that nobody made wakes no object; one that was made and is not known is refused the same way', async () => {
    const { tagKey } = await configurationOf(env);
    const { apiKey: foreign } = await newApiKey(tagKey, 'nobody');
    const key = await create('forging');
    const awake = (await listDurableObjectIds(env.TENANT)).length;
    const tail = key.api_key.endsWith('A') ? 'Q' : 'A';
    for (const wrong of [
      'sgk_',
      'x',
      key.api_key.slice(0, -1),
      `${key.api_key.slice(0, -1)}${tail}`,
      key.api_key.replace('forging', 'other'),
      `${key.api_key}A`,
      OPERATOR_TOKEN,
      await tokenOf(),
    ]) {
      const answer = await exchange(wrong);
      expect(problemIn(answer)).toMatchObject({
        status: answer.status,
        code: expect.stringMatching(/unauthenticated|invalid_request/),
      });
      expect([400, 401]).toContain(answer.status);
    }
    expect((await listDurableObjectIds(env.TENANT)).length).toBe(awake);
    expect(problemIn(await exchange(foreign)).detail).toBe('the API key is unknown, revoked or expired');
    expect((await exchange(key.api_key)).status).toBe(200);
  });

  test('is no access token, no operator token and no enrolment token', async () => {
    const { api_key: apiKey } = await create('kinds');
    expect((await list(apiKey)).status).toBe(401);
    expect((await api('GET', '/v1/hosts', { token: apiKey })).status).toBe(401);
    const token = await tokenFor(apiKey);
    expect((await api('GET', '/v1/hosts', { token })).status).toBe(403);
    expect((await exchange(token)).status).toBe(401);
  });

  test('is over when it says so', async () => {
    const expires = new Date(Date.now() + MINUTE_MS).toISOString();
    const { api_key: apiKey } = await create('ending', { expires_at: expires });
    const issued = IssuedTokenSchema.parse((await exchange(apiKey)).json);
    // Its tokens end with it, and say so.
    expect(issued.expires_in).toBeLessThanOrEqual(60);
    expect((decodeJwt(issued.access_token).exp ?? 0) * 1_000).toBeLessThanOrEqual(Date.parse(expires));
    laterBy(MINUTE_MS + 1);
    expect((await exchange(apiKey)).status).toBe(401);
    const past = { subject: 'x', scopes: ['a'], expires_at: new Date(Date.now() - 1).toISOString() };
    const refused = await api('POST', '/v1/tenants/ending/api-keys', { ...operator, body: past });
    expect(problemIn(refused).violations?.[0]?.path).toBe('body.expires_at');
  });

  test('of a disabled tenant is not exchanged', async () => {
    const { api_key: apiKey } = await create('disabling');
    const set = (disabled: boolean) =>
      api('POST', '/v1/tenants/disabling/status', { ...operator, body: { disabled } });
    await set(true);
    expect((await exchange(apiKey)).status).toBe(401);
    await set(false);
    expect((await exchange(apiKey)).status).toBe(200);
  });

  test('is exchanged within the rate of its tenant', async () => {
    const { api_key: apiKey } = await create('hasty');
    const body = { tenant: { requests_per_minute: 3 } };
    await api('PUT', '/v1/tenants/hasty/limits', { ...operator, body });
    const statuses: number[] = [];
    for (let n = 0; n < 5; n += 1) statuses.push((await exchange(apiKey)).status);
    expect(statuses).toEqual([200, 200, 200, 429, 429]);
  });
});

describe('what is revoked (A23)', () => {
  const refusal = async (answer: Promise<ApiAnswer>) => problemIn(await answer).detail;

  test('with an API key goes its exchange at once and its tokens within a minute; other keys stay', async () => {
    const [key, other] = [await create('revoked'), await create('revoked')];
    const [token, kept] = [
      await tokenFor(key.api_key, { lifetime_s: 600 }),
      await tokenFor(other.api_key, { lifetime_s: 600 }),
    ];
    expect((await list(token)).status).toBe(200);
    const path = `/v1/tenants/revoked/api-keys/${key.key_id}`;
    expect((await api('DELETE', path, operator)).status).toBe(204);
    expect((await exchange(key.api_key)).status).toBe(401);
    laterBy(MINUTE_MS);
    expect(await refusal(list(token))).toBe('the API key is revoked');
    expect((await list(kept)).status).toBe(200);
    expect((await exchange(other.api_key)).status).toBe(200);
    const unknown = path.replace('revoked/', 'other/');
    expect((await api('DELETE', unknown, operator)).status).toBe(404);
  });

  test('with a subject go all tokens and keys that it has, of any issuer, and not those of later', async () => {
    const exp = nowS() + 3_600;
    const tokenAs = (sub: string) => tokenOf({ claims: { tenant: 'leavers', sub, exp }, nowS: nowS() - 5 });
    const [gone, stays] = [await tokenAs('robot'), await tokenAs('human')];
    const key = await create('leavers');
    const keyToken = await tokenFor(key.api_key, { lifetime_s: 600 });
    for (const token of [gone, stays, keyToken]) expect((await list(token)).status).toBe(200);
    const revoke = (body: object) => api('POST', '/v1/tenants/leavers/revoked-tokens', { ...operator, body });
    expect((await revoke({ subject: 'robot' })).status).toBe(204);
    expect((await exchange(key.api_key)).status).toBe(401);
    laterBy(MINUTE_MS);
    expect(await refusal(list(gone))).toBe('the tokens of the subject are revoked');
    expect(await refusal(list(keyToken))).toBe('the API key is revoked');
    expect((await list(stays)).status).toBe(200);
    expect((await list(await tokenOf({ claims: { tenant: 'leavers', sub: 'robot' } }))).status).toBe(200);
    expect(
      (await list(await tokenOf({ claims: { tenant: 'elsewhere', sub: 'robot' }, nowS: nowS() - 90 })))
        .status,
    ).toBe(200);
    for (const body of [{}, { jti: 'a', subject: 'b' }]) expect((await revoke(body)).status).toBe(400);
  });
});

test.each([
  [{ scopes: SCOPES }, 'body.subject'],
  [{ subject: 'a', scopes: [] }, 'body.scopes'],
  [{ subject: 'a', scopes: ['a b'] }, 'body.scopes.0'],
  [{ subject: 'a\nb', scopes: SCOPES }, 'body.subject'],
])('a key that cannot be meant is refused: %j', async (body, path) => {
  const answer = await api('POST', '/v1/tenants/acme/api-keys', { ...operator, body });
  expect(problemIn(answer).violations?.[0]?.path).toBe(path);
});

test('an issuer that names itself as the edge is refused by the configuration', async () => {
  const { readConfiguration } = await import('../../../worker/configuration.ts');
  const keys = { keys: [{}] };
  const issuers = [{ issuer: ORIGIN, audience: ORIGIN, jwks: keys, algorithms: ['Ed25519'] }];
  await expect(readConfiguration({ ...env, ISSUERS: JSON.stringify(issuers) })).rejects.toThrow(
    'ISSUERS names the edge itself',
  );
});
