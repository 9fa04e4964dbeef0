/** What a session that is over still has to tell stays until it is told, and no longer. */
import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import {
  create,
  DAY_MS,
  open,
  passTime,
  receiver,
  shell,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';

useHookedTenant();

const objectOf = (sessionId: string) =>
  env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId)));

function keptEvents(sessionId: string): Promise<number> {
  return runInDurableObject(objectOf(sessionId), (_object, { storage }) =>
    Number(storage.sql.exec('SELECT COUNT(*) AS count FROM session_event').one().count),
  );
}

async function ringLater(sessionId: string, ms: number): Promise<void> {
  passTime(ms);
  await runDurableObjectAlarm(objectOf(sessionId));
}

/** With what lets its events be sent again. */
async function purgedUntold(): Promise<{ sessionId: string; send: () => void }> {
  await create({ events: ['execution.finished', 'session.destroyed'] });
  const sessionId = await open();
  const queue = vi.spyOn(env.NOTICES, 'send').mockRejectedValue(new Error('the queue is away'));
  vi.spyOn(console, 'warn').mockImplementation(() => {});
  await shell(sessionId);
  await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
  await ringLater(sessionId, 61_000);
  expect(await keptEvents(sessionId)).toBeGreaterThan(1);
  expect(receiver.received).toEqual([]);
  return { sessionId, send: () => queue.mockRestore() };
}

describe('a session that was purged while its events could not be sent', () => {
  test('sends them when they can be, and then keeps none but the newest', async () => {
    const { sessionId, send } = await purgedUntold();
    send();
    await eventually(async () => {
      await ringLater(sessionId, 600_000);
      expect(receiver.received.length).toBeGreaterThanOrEqual(2);
    });
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBeGreaterThanOrEqual(2);
    await eventually(async () => expect(await keptEvents(sessionId)).toBe(1));
  });

  test('keeps none but the newest of those that were given up', async () => {
    const { sessionId } = await purgedUntold();
    await ringLater(sessionId, 4 * DAY_MS);
    await eventually(async () => expect(await keptEvents(sessionId)).toBe(1));
    expect(receiver.received).toEqual([]);
  });
});
