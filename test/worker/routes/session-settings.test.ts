/** What sessions are found by, how long they live, and what is left of them in an export. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { ReceiptExportSchema, verifyChain } from '../../../shared/receipt-verify.ts';
import {
  parseLabelSelector,
  type Session,
  SessionListSchema,
  SessionSchema,
} from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import { echo, type HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let token: string;
let running: ExecutionDouble[];
beforeEach(async () => {
  running = [];
  host = await connectFakeHost();
  token = await tokenOf({ claims: { tenant: 'acme', sub: `alice-${crypto.randomUUID()}` } });
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

async function create(body: object = {}): Promise<Session> {
  const answer = await api('POST', '/v1/sessions', { token, body });
  if (answer.status !== 201) throw new Error(answer.text);
  return SessionSchema.parse(answer.json);
}

async function patch(id: string, body: object) {
  return api('PATCH', `/v1/sessions/${id}`, { token, body });
}

async function found(query: string): Promise<string[]> {
  const answer = await api('GET', `/v1/sessions${query}`, { token });
  return SessionListSchema.parse(answer.json).sessions.map(({ session_id }) => session_id);
}

const objectStub = (id: string) => env.SESSION.get(env.SESSION.idFromName(`acme:${id}`));

async function passes(ms: number, id: string): Promise<void> {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
  await runDurableObjectAlarm(objectStub(id));
}

async function isThere(id: string): Promise<boolean> {
  return (await api('GET', `/v1/sessions/${id}`, { token })).status === 200;
}

describe('labels', () => {
  test('are given at the create, and what a session is found by', async () => {
    const red = await create({ labels: { team: 'red', env: 'prod' } });
    const blue = await create({ labels: { team: 'blue', env: 'prod' } });
    await create();
    expect(red.labels).toEqual({ team: 'red', env: 'prod' });
    expect(await found('?label=team=red')).toEqual([red.session_id]);
    expect(await found('?label=env=prod')).toEqual([blue.session_id, red.session_id]);
    expect(await found('?label=env=prod,team=red')).toEqual([red.session_id]);
    expect(await found('?label=team')).toEqual([blue.session_id, red.session_id]);
    expect(await found('?label=team=green')).toEqual([]);
    expect(await found('?label=env=prod&state=running')).toHaveLength(2);
    expect(await found('?label=env=prod&state=error')).toEqual([]);
    expect(await found('')).toHaveLength(3);
  });

  test('are searched page by page', async () => {
    const ids: string[] = [];
    for (let count = 0; count < 5; count += 1) {
      ids.unshift((await create({ labels: { kind: count % 2 === 0 ? 'even' : 'odd' } })).session_id);
    }
    const first = SessionListSchema.parse(
      (await api('GET', '/v1/sessions?label=kind=even&limit=2', { token })).json,
    );
    const rest = SessionListSchema.parse(
      (await api('GET', `/v1/sessions?label=kind=even&limit=2&cursor=${first.next_cursor}`, { token })).json,
    );
    const all = [...first.sessions, ...rest.sessions].map(({ session_id }) => session_id);
    expect(all).toEqual([ids[0], ids[2], ids[4]]);
    expect(rest.next_cursor).toBeNull();
  });

  test('change one by one, and are gone with their session', async () => {
    const { session_id: id } = await create({ labels: { team: 'red', env: 'prod' } });
    const changed = await patch(id, { labels: { env: null, owner: 'bob' } });
    expect(SessionSchema.parse(changed.json).labels).toEqual({ team: 'red', owner: 'bob' });
    expect(await found('?label=env')).toEqual([]);
    expect(await found('?label=owner=bob')).toEqual([id]);
    await api('DELETE', `/v1/sessions/${id}`, { token });
    expect(await found('?label=owner=bob')).toEqual([]);
  });

  test('of another subject are not found', async () => {
    await create({ labels: { team: 'red' } });
    token = await tokenOf({ claims: { tenant: 'acme', sub: 'mallory' } });
    expect(await found('?label=team=red')).toEqual([]);
  });

  test.each<[string, object]>([
    ['a key with a space', { 'a b': 'x' }],
    ['a value that is too long', { a: 'x'.repeat(64) }],
    ['too many', Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`k${n}`, 'v']))],
  ])('are refused with %s', async (_name, labels) => {
    expect(problemIn(await api('POST', '/v1/sessions', { token, body: { labels } })).code).toBe(
      'invalid_request',
    );
  });

  test.each([
    [
      'team=red,env',
      [
        { key: 'team', value: 'red' },
        { key: 'env', value: undefined },
      ],
    ],
    ['team=', [{ key: 'team', value: '' }]],
    ['', undefined],
    ['team=red,', undefined],
    ['=red', undefined],
    ["a' OR 1=1", undefined],
  ])('are selected by %j', (text, expected) => {
    expect(parseLabelSelector(text)).toEqual(expected);
  });

  test('that are none are a request that is wrong', async () => {
    const answer = await api('GET', '/v1/sessions?label=%3D', { token });
    expect(problemIn(answer)).toMatchObject({ code: 'invalid_request' });
  });
});

describe('the lifetime of a session', () => {
  const HOUR_S = 3_600;
  const hold = (execution: ExecutionDouble) => {
    running.push(execution);
    execution.started();
  };
  const call = (id: string, command: string, more: object = {}) =>
    api('POST', `/v1/sessions/${id}/execute`, {
      token,
      body: { tool_name: 'shell', arguments: { command }, ...more },
    });

  test('ends it, though it is not idle', async () => {
    const {
      session_id: id,
      expires_at,
      created_at,
    } = await create({ lifetime_s: 60, idle_timeout_s: HOUR_S });
    expect(Date.parse(expires_at ?? '') - Date.parse(created_at)).toBe(60_000);
    await passes(59_000, id);
    expect(await isThere(id)).toBe(true);
    await passes(2_000, id);
    expect(await isThere(id)).toBe(false);
  });

  test('does not cut what runs, and takes no more calls meanwhile', async () => {
    host.script = hold;
    const { session_id: id } = await create({ lifetime_s: 60, idle_timeout_s: HOUR_S });
    const answer = call(id, 'long', { timeout_ms: 600_000 });
    await host.until(() => running.length === 1);
    await passes(61_000, id);
    expect(await isThere(id)).toBe(true);
    expect(problemIn(await call(id, 'more')).code).toBe('session_not_running');
    await running[0]?.finish();
    expect((await answer).status).toBe(200);
    await passes(6_000, id);
    expect(await isThere(id)).toBe(false);
  });

  test('is made longer, shorter and without an end', async () => {
    const { session_id: id } = await create({ lifetime_s: 60, idle_timeout_s: HOUR_S });
    const longer = SessionSchema.parse((await patch(id, { lifetime_s: 120 })).json);
    expect(Date.parse(longer.expires_at ?? '')).toBeGreaterThan(Date.now() + 110_000);
    await passes(61_000, id);
    expect(await isThere(id)).toBe(true);
    expect(SessionSchema.parse((await patch(id, { lifetime_s: null })).json).expires_at).toBeNull();
    await passes(100_000, id);
    expect(await isThere(id)).toBe(true);
    const shorter = SessionSchema.parse((await patch(id, { idle_timeout_s: 5 })).json);
    expect(shorter.idle_timeout_s).toBe(5);
    await passes(6_000, id);
    expect(await isThere(id)).toBe(false);
  });

  test('does not count pauses', async () => {
    const { session_id: id } = await create({ lifetime_s: 60, idle_timeout_s: HOUR_S });
    const paused = await api('POST', `/v1/sessions/${id}/pause`, { token });
    expect(paused.status).toBe(200);
    await passes(600_000, id);
    expect(await isThere(id)).toBe(true);
    await api('POST', `/v1/sessions/${id}/resume`, { token });
    host.script = echo;
    expect((await call(id, 'still')).status).toBe(200);
    await passes(61_000, id);
    expect(await isThere(id)).toBe(false);
  });

  test.each([{ lifetime_s: 59 }, { idle_timeout_s: 0 }, { image: 'other' }, { labels: { a: 1 } }])(
    'and what else may not be changed to %j',
    async (body) => {
      const { session_id: id } = await create();
      expect(problemIn(await patch(id, body)).code).toBe('invalid_request');
    },
  );
});

describe('the export of a session', () => {
  const LineSchema = z.discriminatedUnion('type', [
    z.object({ type: z.literal('session'), session: SessionSchema }),
    z.object({ type: z.literal('execution'), execution: ExecutionSchema }),
    z.object({ type: z.literal('receipt'), receipt: ReceiptExportSchema.shape.receipts.element }),
    z.object({ type: z.literal('keys'), keys: ReceiptExportSchema.shape.keys }),
    z.object({ type: z.literal('end'), executions: z.int(), receipts: z.int() }),
  ]);

  async function exported(id: string) {
    const answer = await api('GET', `/v1/sessions/${id}/export`, { token });
    expect(answer.headers.get('Content-Type')).toBe('application/jsonl');
    return answer.text
      .trimEnd()
      .split('\n')
      .map((line) => LineSchema.parse(JSON.parse(line)));
  }

  test('has all that ran and all that was signed, and verifies', async () => {
    const { session_id: id } = await create({ labels: { team: 'red' } });
    const COUNT = 103;
    for (let n = 0; n < COUNT; n += 1) {
      await api('POST', `/v1/sessions/${id}/execute`, {
        token,
        body: { tool_name: 'shell', arguments: { command: `n${n}` } },
      });
    }
    const lines = await exported(id);
    expect(lines[0]).toMatchObject({ type: 'session', session: { session_id: id, labels: { team: 'red' } } });
    const outputs = lines.flatMap((line) => (line.type === 'execution' ? [line.execution.stdout] : []));
    expect(outputs).toEqual(Array.from({ length: COUNT }, (_, n) => `n${COUNT - 1 - n}`));
    const receipts = lines.flatMap((line) => (line.type === 'receipt' ? [line.receipt] : []));
    const keys = lines.find((line) => line.type === 'keys');
    if (keys?.type !== 'keys') throw new Error('no keys');
    expect(await verifyChain(receipts, keys.keys, id)).toMatchObject({ ok: true });
    expect(lines.at(-1)).toEqual({ type: 'end', executions: COUNT, receipts: COUNT });
  });

  test('of a session in which nothing ran is whole too', async () => {
    const { session_id: id } = await create();
    expect((await exported(id)).map(({ type }) => type)).toEqual(['session', 'keys', 'end']);
  });
});
