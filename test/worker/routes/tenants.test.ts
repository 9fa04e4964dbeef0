import { afterEach, describe, expect, test, vi } from 'vitest';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
const MINUTE_MS = 60_000;
afterEach(() => vi.useRealTimers());

/** What of the answer to a token is known in this isolate may be as old as this. */
function minutePasses(): void {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + MINUTE_MS });
}

async function list(token: string) {
  return api('GET', '/v1/sessions', { token });
}

describe('a revoked token (A23)', () => {
  test('is refused within a minute, and the other tokens of its subject are not', async () => {
    const claims = { tenant: 'revoking', jti: 'stolen', exp: Math.floor(Date.now() / 1_000) + 3_600 };
    const stolen = await tokenOf({ claims });
    const other = await tokenOf({ claims: { ...claims, jti: 'kept' } });
    expect((await list(stolen)).status).toBe(200);
    const revoked = await api('POST', '/v1/tenants/revoking/revoked-tokens', {
      ...operator,
      body: { jti: 'stolen' },
    });
    expect(revoked.status).toBe(204);
    minutePasses();
    const answer = await list(stolen);
    expect(problemIn(answer)).toMatchObject({
      status: 401,
      code: 'unauthenticated',
      detail: 'the token is revoked',
    });
    expect(answer.headers.get('WWW-Authenticate')).toContain('error="invalid_token"');
    expect((await list(other)).status).toBe(200);
    const status = await api('GET', '/v1/tenants/revoking', operator);
    expect(status.json).toEqual({ tenant: 'revoking', disabled: false, revoked_tokens: 1 });
  });

  test("of one tenant says nothing of another tenant's token with the same id", async () => {
    await api('POST', '/v1/tenants/tenant-a/revoked-tokens', { ...operator, body: { jti: 'same' } });
    expect((await list(await tokenOf({ claims: { tenant: 'tenant-a', jti: 'same' } }))).status).toBe(401);
    expect((await list(await tokenOf({ claims: { tenant: 'tenant-b', jti: 'same' } }))).status).toBe(200);
  });
});

describe('a disabled tenant (A23)', () => {
  test('is refused within a minute, others are not, and enabled again it may call', async () => {
    const exp = Math.floor(Date.now() / 1_000) + 3_600;
    const token = await tokenOf({ claims: { tenant: 'leaving', exp } });
    const neighbour = await tokenOf({ claims: { tenant: 'staying', exp } });
    expect((await list(token)).status).toBe(200);
    const set = (disabled: boolean) =>
      api('POST', '/v1/tenants/leaving/status', { ...operator, body: { disabled } });
    expect((await set(true)).status).toBe(204);
    minutePasses();
    expect(problemIn(await list(token))).toMatchObject({ status: 401, detail: 'the tenant is disabled' });
    expect((await list(neighbour)).status).toBe(200);
    expect((await set(false)).status).toBe(204);
    vi.useRealTimers();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * MINUTE_MS });
    expect((await list(token)).status).toBe(200);
  });
});

test.each(['/v1/tenants/acme/status', '/v1/tenants/acme/revoked-tokens'])(
  'a token of a tenant may not use %s',
  async (path) => {
    expect((await api('POST', path, { token: await tokenOf(), body: {} })).status).toBe(403);
  },
);

test('what cannot be the name of a tenant is not found', async () => {
  expect((await api('GET', '/v1/tenants/..%2f', operator)).status).toBe(404);
  expect((await api('GET', '/v1/tenants/-', operator)).status).toBe(404);
});
