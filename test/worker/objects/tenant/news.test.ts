/** What sessions of a tenant are told when its limits or its webhooks change. */
import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest';
import { WALK_EVERY_MS } from '../../../../worker/objects/tenant/news/news.ts';
import type { TermsNotice } from '../../../../worker/terms/notice.ts';
import { eventually } from '../../harness/eventually.ts';
import { newId } from '../../harness/sessions.ts';

const SESSIONS = 1_050;

let count = 0;
let tenant: string;
let sent: TermsNotice[];
let ids: string[];
let send: MockInstance<typeof env.NOTICES.sendBatch>;

beforeEach(async () => {
  count += 1;
  tenant = `told-${count}`;
  sent = [];
  ids = await Promise.all(Array.from({ length: SESSIONS }, newId));
  send = vi.spyOn(env.NOTICES, 'sendBatch').mockImplementation(async (messages) => {
    for (const { body } of messages) sent.push(body);
  });
  await runInDurableObject(objectStub(), (_object, { storage }) => {
    for (const [n, id] of ids.entries()) {
      storage.sql.exec(
        'INSERT INTO session_account VALUES (?, ?, ?, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0)',
        id,
        n % 2 === 0 ? 'alice' : 'bob',
        'live',
      );
    }
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const objectStub = () => env.TENANT.get(env.TENANT.idFromName(tenant));
const limitsOf = (subjects: Record<string, object>) => {
  const none = {
    requests_per_minute: null,
    concurrent_sessions: null,
    concurrent_executions: null,
    cpu_seconds_per_day: null,
    egress_bytes_per_day: null,
    storage_bytes: null,
  };
  const session = { executions: null, cpu_seconds: null, egress_bytes: null, storage_bytes: null };
  const each = Object.entries(subjects).map(([subject, set]) => [subject, { ...none, ...set }]);
  return { tenant: none, subject: none, subjects: Object.fromEntries(each), session };
};

const told = () => sent.flatMap(({ sessions }) => sessions);

describe('a change of a tenant’s limits', () => {
  test('is told to each session once, a hundred a message, each what holds for its subject', async () => {
    await env.TENANT.getByName(tenant).setLimits(tenant, limitsOf({ bob: { concurrent_executions: 1 } }));
    await eventually(() => expect(told()).toHaveLength(SESSIONS));
    expect(told().map(({ sessionId }) => sessionId)).toEqual(ids.toSorted());
    expect(sent.every(({ sessions }) => sessions.length <= 100)).toBe(true);
    const bobs = new Set(ids.filter((_id, n) => n % 2 === 1));
    for (const { sessionId, limited } of told()) expect(limited).toBe(bobs.has(sessionId));
  });

  test('is told again from the beginning where the queue did not take it', async () => {
    send.mockRejectedValueOnce(new Error('down'));
    await env.TENANT.getByName(tenant).setLimits(tenant, limitsOf({}));
    await eventually(() => expect(send).toHaveBeenCalledTimes(1));
    expect(told()).toEqual([]);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + WALK_EVERY_MS });
    await runDurableObjectAlarm(objectStub());
    expect(new Set(told().map(({ sessionId }) => sessionId))).toEqual(new Set(ids));
  });

  test('that comes while another is told is told to all of them, with a higher number', async () => {
    send.mockImplementationOnce(async (messages) => {
      for (const { body } of messages) sent.push(body);
      await env.TENANT.getByName(tenant).setLimits(tenant, limitsOf({ bob: { concurrent_executions: 1 } }));
    });
    await env.TENANT.getByName(tenant).setLimits(tenant, limitsOf({}));
    await eventually(() => expect(told()).toHaveLength(SESSIONS));
    const first = sent.splice(0);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + WALK_EVERY_MS });
    await runDurableObjectAlarm(objectStub());
    expect(told().filter(({ limited }) => limited)).toHaveLength(SESSIONS / 2);
    expect(sent[0]?.terms.revision).toBeGreaterThan(first[0]?.terms.revision ?? 0);
  });
});

test('the first webhook of a tenant is told, and the second is no news', async () => {
  const object = env.TENANT.getByName(tenant);
  await object.setWebhooks(tenant, true);
  await eventually(() => expect(told()).toHaveLength(SESSIONS));
  expect(sent[0]?.terms.webhooksSinceMs).toEqual(expect.any(Number));
  await object.setWebhooks(tenant, true);
  expect(await runDurableObjectAlarm(objectStub())).toBe(false);
});
