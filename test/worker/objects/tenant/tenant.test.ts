import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { TenantPort } from '../../../../worker/objects/tenant/port.ts';
import { takeTokens } from '../../../../worker/objects/tenant/token-bucket.ts';
import { newId } from '../../harness/sessions.ts';

let count = 0;
let tenant: TenantPort;
beforeEach(() => {
  count += 1;
  tenant = env.TENANT.getByName(`tenant-${count}`);
});
afterEach(() => vi.useRealTimers());

async function record(subject: string, createdAt: string): Promise<string> {
  const session_id = await newId();
  const entry = {
    session_id,
    state: 'running',
    image: 'python',
    metadata: {},
    labels: {},
    created_at: createdAt,
  } as const;
  await tenant.recordSession({ subject, entry });
  return session_id;
}

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();

describe('the list of sessions', () => {
  test('gives those of the subject, newest first, in pages without gap or repeat', async () => {
    const ids: string[] = [];
    for (let second = 0; second < 7; second += 1)
      ids.unshift(await record('alice', at(Math.floor(second / 2))));
    await record('bob', at(9));
    const listed: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await tenant.listSessions({ subject: 'alice', limit: 3, cursor });
      if (!page.ok) throw new Error(page.detail);
      expect(page.value.sessions.length).toBeLessThanOrEqual(3);
      listed.push(...page.value.sessions.map(({ session_id }) => session_id));
      cursor = page.value.next_cursor ?? undefined;
    } while (cursor !== undefined);
    expect(listed).toHaveLength(7);
    expect(new Set(listed)).toEqual(new Set(ids));
    expect(listed[0]).toBe(ids[0]);
  });

  test('loses a session that is forgotten, also behind a cursor', async () => {
    const [old, young] = [await record('alice', at(1)), await record('alice', at(2))];
    const page = await tenant.listSessions({ subject: 'alice', limit: 1 });
    if (!page.ok) throw new Error(page.detail);
    await tenant.forgetSession(young, null);
    const rest = await tenant.listSessions({
      subject: 'alice',
      limit: 1,
      cursor: page.value.next_cursor ?? undefined,
    });
    expect(rest).toMatchObject({ value: { sessions: [{ session_id: old }], next_cursor: null } });
  });

  test.each(['x', 'eyJ9', '%%', btoa('["2026","ses_x"]')])('refuses the cursor %s', async (cursor) => {
    expect(await tenant.listSessions({ subject: 'alice', limit: 1, cursor })).toMatchObject({
      code: 'invalid_request',
      violations: [{ path: 'query.cursor' }],
    });
  });
});

describe('the key of a create', () => {
  test('belongs to the first session, also when twenty ask at once', async () => {
    const ids = await Promise.all(Array.from({ length: 20 }, () => newId()));
    const answers = await Promise.all(
      ids.map((id) => tenant.reserveCreate({ key: 'k', fingerprint: 'f', id })),
    );
    const values = answers.map((answer) => (answer.ok ? answer.value : undefined));
    expect(new Set(values.map((value) => value?.id)).size).toBe(1);
    expect(values.filter((value) => value?.fresh)).toHaveLength(1);
  });

  test('of another request is a conflict, and of another tenant another key (A33)', async () => {
    const id = await newId();
    await tenant.reserveCreate({ key: 'k', fingerprint: 'f', id });
    expect(await tenant.reserveCreate({ key: 'k', fingerprint: 'g', id })).toMatchObject({
      code: 'idempotency_conflict',
    });
    const other = env.TENANT.getByName(`other-${count}`);
    expect(await other.reserveCreate({ key: 'k', fingerprint: 'g', id: 's' })).toMatchObject({
      value: { fresh: true },
    });
  });

  test('is forgotten after a day', async () => {
    const [first, second] = [await newId(), await newId()];
    await tenant.reserveCreate({ key: 'k', fingerprint: 'f', id: first });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 86_401_000 });
    expect(await tenant.reserveCreate({ key: 'k', fingerprint: 'f', id: second })).toMatchObject({
      value: { id: second, fresh: true },
    });
  });
});

describe('the request rate', () => {
  test('is granted up to its limit, then refilled evenly', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const limit = Number(env.TENANT_REQUESTS_PER_MINUTE);
    const all = await tenant.leaseRequests(limit + 5);
    expect(all).toMatchObject({ value: { granted: limit, limit, remaining: 0 } });
    expect(await tenant.leaseRequests(1)).toMatchObject({ value: { granted: 0, reset_s: 1 } });
    vi.setSystemTime(Date.now() + 30_000);
    expect(await tenant.leaseRequests(limit)).toMatchObject({ value: { granted: limit / 2 } });
  });
});

describe('a token bucket', () => {
  const rate = { capacity: 10, perMinute: 60 };
  test('never holds more than its capacity, and never gives a part of a token', () => {
    const bucket = { tokens: 9.5, updatedAtMs: 0 };
    const taken = takeTokens(bucket, rate, { wanted: 20, nowMs: 10_000 });
    expect(taken).toMatchObject({ granted: 10, remaining: 0, resetMs: 1000 });
    expect(takeTokens(taken.bucket, rate, { wanted: 1, nowMs: 10_500 })).toMatchObject({
      granted: 0,
      resetMs: 500,
    });
  });

  test('takes no notice of a clock that goes back', () => {
    const taken = takeTokens({ tokens: 1, updatedAtMs: 5_000 }, rate, { wanted: 5, nowMs: 1_000 });
    expect(taken.granted).toBe(1);
  });
});

describe('rights that outlive their token', () => {
  const DAY_MS = 86_400_000;
  const owner = { tokenId: 'a-token', subject: 'alice', issuedAtMs: 0, apiKeyId: null };
  const ends = async (name: string, about: Partial<typeof owner>) => {
    const lease = await env.TENANT.getByName(name).leaseRequests(1, { owner: { ...owner, ...about } });
    return lease.ok && lease.value.endsRights;
  };

  test('end with a revocation, however long ago, and not those that were given after it', async () => {
    const nowMs = Date.now();
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs - 90 * DAY_MS });
    const tenant = env.TENANT.getByName('long-rights');
    await tenant.revokeSubject('alice');
    await tenant.revokeToken('stolen');
    vi.setSystemTime(nowMs);
    expect(await tenant.leaseRequests(1)).toMatchObject({
      value: { endsRights: false, standing: { bars: { tokens: [], subjects: [] } } },
    });
    expect(await ends('long-rights', { issuedAtMs: nowMs - 91 * DAY_MS })).toBe(true);
    expect(await ends('long-rights', { issuedAtMs: nowMs - 89 * DAY_MS })).toBe(false);
    expect(await ends('long-rights', { subject: 'bob', issuedAtMs: nowMs - 91 * DAY_MS })).toBe(false);
    const stolen = { subject: 'bob', tokenId: 'stolen', issuedAtMs: nowMs - 91 * DAY_MS };
    expect(await ends('long-rights', stolen)).toBe(true);
    vi.useRealTimers();
  });

  test('end after four hundred days, for as long as revocations are known', async () => {
    expect(await ends('old-rights', { issuedAtMs: Date.now() - 401 * DAY_MS })).toBe(true);
    expect(await ends('old-rights', { issuedAtMs: Date.now() - 399 * DAY_MS })).toBe(false);
  });
});
