import { afterEach, expect, test, vi } from 'vitest';
import { EnrollmentTokenSchema, ListedEnrollmentTokenSchema } from '../../../shared/host-api.ts';
import { ENROLLMENT_TOKEN_LIFETIME_S } from '../../../shared/limits.ts';
import { EnrollmentTokenListSchema } from '../../../worker/routes/enrollment-tokens.ts';
import { enrollDouble } from '../../fixtures/host-double/host-double.ts';
import { api, problemIn } from '../harness/api.ts';
import { workerTransport } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

const operator = { token: OPERATOR_TOKEN };
afterEach(() => vi.useRealTimers());

async function make() {
  const answer = await api('POST', '/v1/enrollment-tokens', { ...operator, body: {} });
  return EnrollmentTokenSchema.parse(answer.json);
}

async function page(query = '') {
  const answer = await api('GET', `/v1/enrollment-tokens${query}`, operator);
  expect(answer.status, answer.text).toBe(200);
  return EnrollmentTokenListSchema.parse(answer.json);
}

async function shown(tokenId: string) {
  return (await page()).enrollment_tokens.find(({ token_id }) => token_id === tokenId);
}

async function revoke(tokenId: string) {
  return ListedEnrollmentTokenSchema.parse(
    (await api('DELETE', `/v1/enrollment-tokens/${tokenId}`, operator)).json,
  );
}

test('a token that was made is listed as unused, and what it is is shown nowhere', async () => {
  const made = await make();
  expect(await shown(made.token_id)).toEqual({
    token_id: made.token_id,
    pool: 'default',
    state: 'unused',
    expires_at: made.expires_at,
    used_at: null,
    host_id: null,
    revoked_at: null,
  });
  const secret = made.enrollment_token.slice('enr_default.'.length);
  expect(JSON.stringify(await page())).not.toContain(secret.slice(0, 12));
});

test('one that a host has used says which host it was, and revoking it changes nothing', async () => {
  const made = await make();
  const host = await enrollDouble(workerTransport, made.enrollment_token);
  const used = { state: 'used', host_id: host.hostId, revoked_at: null };
  expect(await shown(made.token_id)).toMatchObject(used);
  expect(await revoke(made.token_id)).toMatchObject(used);
});

test('one that is revoked lets no host in, however often it is revoked', async () => {
  const made = await make();
  expect(await revoke(made.token_id)).toMatchObject({ state: 'revoked', used_at: null });
  const again = await revoke(made.token_id);
  await expect(enrollDouble(workerTransport, made.enrollment_token)).rejects.toThrow(
    /401.*enrollment_refused/,
  );
  expect(await shown(made.token_id)).toEqual(again);
});

test('one that is revoked while a host enrols with it is either used or revoked, never both', async () => {
  for (let round = 0; round < 10; round += 1) {
    const made = await make();
    const [enrolled] = await Promise.allSettled([
      enrollDouble(workerTransport, made.enrollment_token),
      revoke(made.token_id),
    ]);
    const now = await shown(made.token_id);
    expect(now?.state).toBe(enrolled.status === 'fulfilled' ? 'used' : 'revoked');
    expect((now?.used_at ?? null) === null).toBe((now?.revoked_at ?? null) !== null);
  }
});

test('one whose time is over is listed as expired for a month, and gone then', async () => {
  const made = await make();
  const later = (ms: number) => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
  later((ENROLLMENT_TOKEN_LIFETIME_S + 1) * 1_000);
  expect(await shown(made.token_id)).toMatchObject({ state: 'expired' });
  vi.useRealTimers();
  later(31 * 86_400_000);
  await make();
  expect(await shown(made.token_id)).toBeUndefined();
});

test('the list has pages without gap or repeat', async () => {
  const made = await Promise.all(Array.from({ length: 5 }, make));
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const next: Awaited<ReturnType<typeof page>> = await page(
      `?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`,
    );
    seen.push(...next.enrollment_tokens.map(({ token_id }) => token_id));
    cursor = next.next_cursor;
  }
  expect(new Set(seen).size).toBe(seen.length);
  for (const { token_id } of made) expect(seen).toContain(token_id);
  expect(problemIn(await api('GET', '/v1/enrollment-tokens?cursor=x', operator)).code).toBe(
    'invalid_request',
  );
});

test.each([`ent_${'0'.repeat(32)}`, 'ent_', 'x'])('%s is no token', async (tokenId) => {
  const answer = await api('DELETE', `/v1/enrollment-tokens/${tokenId}`, operator);
  expect(problemIn(answer)).toMatchObject({ status: 404, code: 'not_found' });
});

test('those of a pool that this edge does not have are not asked for', async () => {
  const answer = await api('GET', '/v1/enrollment-tokens?pool=nowhere', operator);
  expect(problemIn(answer)).toMatchObject({ code: 'invalid_request' });
});
