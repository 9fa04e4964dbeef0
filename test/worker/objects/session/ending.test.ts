import { evictDurableObject, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { STUCK_MS } from '../../../patience.ts';
import { assembled, executeStream } from '../../harness/event-reader.ts';
import { eventually } from '../../harness/eventually.ts';
import { holdSession } from '../../harness/held-session.ts';
import {
  call,
  caller,
  createOn,
  newId,
  sessionObject,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession(async (execution) => {
    execution.started();
    await execution.write('stdout', 'begin\n');
  }));
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

const objectStub = () => sessionObject(session.id);
const listed = async () => {
  const answer = await env.TENANT.getByName(caller.tenant).listSessions({
    subject: caller.subject,
    limit: 100,
  });
  if (!answer.ok) throw new Error(answer.detail);
  return answer.value.sessions.map(({ session_id }) => session_id);
};

describe('deleting a session', () => {
  test('gives calls in flight one terminal event with what they wrote, and is done once (R50)', async () => {
    const stream = await executeStream(session, call('long'));
    await stream.until(({ data }) => data.event === 'stdout');
    const waiting = session.stub.execute(call('queued'));
    expect(await listed()).toContain(session.id);
    expect(await session.stub.destroy(caller)).toEqual({ ok: true, value: null });
    const events = await stream.toEnd();
    expect(assembled(events, 'stdout')).toBe('begin\n');
    expect(events.filter(({ data }) => data.event === 'end')).toHaveLength(1);
    expect(events.at(-1)?.data).toMatchObject({
      event: 'end',
      execution: { status: 'interrupted', reason: 'session_deleted' },
    });
    expect(await waiting).toMatchObject({ value: { status: 'cancelled', reason: 'session_deleted' } });
    for (const again of [
      await session.stub.destroy(caller),
      await session.stub.execute(call('x')),
      await session.stub.describe(caller),
    ]) {
      expect(again).toMatchObject({ ok: false, code: 'not_found' });
    }
    expect(host.sessions.has(session.id)).toBe(false);
    expect(await listed()).not.toContain(session.id);
  });

  test('is done soon when the host does not confirm, which is told again until it does (R59)', async () => {
    host.confirmDestroy = false;
    const startedAtMs = Date.now();
    expect(await session.stub.destroy(caller)).toMatchObject({ ok: true });
    expect(Date.now() - startedAtMs).toBeLessThan(STUCK_MS);
    const told = () => host.commands.filter(({ claims }) => claims.act === 'destroy').length;
    expect(told()).toBe(1);
    const rings = async (count: number) => {
      await eventually(async () => {
        await runDurableObjectAlarm(objectStub());
        expect(told()).toBeGreaterThanOrEqual(count);
      });
    };
    await rings(2);
    host.confirmDestroy = true;
    await rings(3);
    await host.until(() => !host.sessions.has(session.id));
    const before = told();
    await runDurableObjectAlarm(objectStub());
    await runDurableObjectAlarm(objectStub());
    expect(told()).toBe(before);
  });

  test('goes over the control link when the session link is down', async () => {
    const double = host.session(session.id);
    double.drop();
    await expect.poll(() => double.isLinked).toBe(false);
    expect(await session.stub.destroy(caller)).toMatchObject({ ok: true });
    await host.until(() => !host.sessions.has(session.id));
  });

  test('goes over the control link while the sandbox is being made, though its host has linked', async () => {
    const made = Promise.withResolvers<void>();
    host.makesSandboxesAfter = made.promise;
    host.session(session.id).send({ type: 'sandbox_lost', reason: 'crashed' });
    const answer = session.stub.execute(call('in the next sandbox'));
    await host.until(() => host.linking.get(session.id)?.isLinked === true);
    const next = host.linking.get(session.id);
    expect(await session.stub.destroy(caller)).toMatchObject({ ok: true });
    expect(await answer).toMatchObject({ value: { status: 'cancelled', reason: 'session_deleted' } });
    const told = host.commands.filter(({ claims }) => claims.act === 'destroy');
    expect(told.map(({ claims }) => claims.epoch)).toEqual([2]);
    expect(next?.heard.some(({ type }) => type === 'command')).toBe(false);
    // What comes of it at last is nothing to the session.
    made.resolve();
    await host.until(() => next?.heard.some(({ type }) => type === 'fenced') === true);
    expect(await session.stub.describe(caller)).toMatchObject({ code: 'not_found' });
  });

  test('fences the host that dials for it afterwards', async () => {
    host.confirmDestroy = false;
    const double = host.session(session.id);
    double.drop();
    await session.stub.destroy(caller);
    await double.connect();
    await host.until(() => double.heard.some(({ type }) => type === 'fenced'));
  });
});

describe('a session that ends by itself', () => {
  test('does so after its idle time, and never while something runs (R46)', async () => {
    const answer = session.stub.execute(call('long'));
    await host.until(() => running.length === 1);
    const later = Date.now() + 700_000;
    vi.useFakeTimers({ toFake: ['Date'], now: later });
    // The call's own deadline is past by this clock: only the idle time is looked at here.
    await running[0]?.finish();
    await answer;
    await runDurableObjectAlarm(objectStub());
    expect(await session.stub.describe(caller)).toMatchObject({ ok: true });
    vi.setSystemTime(later + 601_000);
    await runDurableObjectAlarm(objectStub());
    expect(await session.stub.describe(caller)).toMatchObject({ code: 'not_found' });
    await host.until(() => !host.sessions.has(session.id));
  });

  test('with its first call answers that, and replays it by its key', async () => {
    host.script = async (execution) => {
      execution.started();
      await execution.write('stdout', 'once');
      await execution.finish();
    };
    const id = await newId();
    await createOn(host, id, { ephemeral: true });
    const stub = sessionStub(id);
    const result = await stub.execute(call('x', { key: 'k' }));
    expect(result).toMatchObject({ value: { status: 'succeeded', stdout: 'once' } });
    await host.until(() => !host.sessions.has(id));
    await expect.poll(async () => (await stub.describe(caller)).ok).toBe(false);
    expect(await stub.execute(call('x', { key: 'k' }))).toEqual(result);
  });

  test('keeps nothing of calls without a key a minute later, and of those with one for a day', async () => {
    host.script = async (execution) => {
      execution.started();
      await execution.finish();
    };
    await session.stub.execute(call('plain'));
    const keyed = await session.stub.execute(call('keyed', { key: 'k' }));
    await session.stub.destroy(caller);
    const endedAtMs = Date.now();
    vi.useFakeTimers({ toFake: ['Date'], now: endedAtMs + 120_000 });
    await runDurableObjectAlarm(objectStub());
    await evictDurableObject(objectStub());
    expect(await session.stub.execute(call('keyed', { key: 'k' }))).toEqual(keyed);
    vi.setSystemTime(endedAtMs + 90_000_000);
    await runDurableObjectAlarm(objectStub());
    expect(await session.stub.execute(call('keyed', { key: 'k' }))).toMatchObject({ code: 'not_found' });
  });
});

describe('a session that could not be made', () => {
  test('says why for a day, and is gone after that', async () => {
    host.refuseAttach = 'host_full';
    const id = await newId();
    await createOn(host, id);
    const stub = sessionObject(id);
    expect(await sessionStub(id).describe(caller)).toMatchObject({ value: { state: 'error' } });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 86_500_000 });
    await runDurableObjectAlarm(stub);
    await runDurableObjectAlarm(stub);
    expect(await sessionStub(id).describe(caller)).toMatchObject({ code: 'not_found' });
  });
});

describe('a dead host', () => {
  test('ends its sessions: what ran is unknown, what waited is cancelled, and callers hear it', async () => {
    const answer = session.stub.execute(call('long'));
    const queued = session.stub.execute(call('queued'));
    await host.until(() => running.length === 1);
    const startedId = running[0]?.id ?? '';
    host.close();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const hostStub = env.HOST.get(env.HOST.idFromName(host.hostId));
    await eventually(async () => {
      vi.setSystemTime(Date.now() + 20_000);
      await runDurableObjectAlarm(hostStub);
      expect(await session.stub.describe(caller)).toMatchObject({
        value: { state: 'error', error: { code: 'host_lost' } },
      });
    });
    expect([await answer, await queued]).toEqual([
      expect.objectContaining({ code: 'host_lost' }),
      expect.objectContaining({ code: 'host_lost' }),
    ]);
    expect(await session.stub.getExecution(caller, startedId)).toMatchObject({
      value: { status: 'unknown', reason: 'host_lost' },
    });
    expect(await session.stub.execute(call('x'))).toMatchObject({ code: 'session_failed' });
  });
});

describe('a silent host', () => {
  test('is answered for by the object itself, and its late answer changes nothing (R01)', async () => {
    const startedAtMs = Date.now();
    const answer = await session.stub.execute(call('hi', { body: { timeout_ms: 1_000 } }));
    expect(answer).toMatchObject({ ok: false, code: 'host_unresponsive' });
    expect(Date.now() - startedAtMs).toBeLessThan(STUCK_MS);
    const [late] = running;
    if (late === undefined) throw new Error('nothing was sent');
    await late.write('stdout', 'late');
    await late.finish();
    host.script = async (execution) => {
      execution.started();
      await execution.write('stdout', 'yo\n');
      await execution.finish();
    };
    expect(await session.stub.execute(call('echo yo'))).toMatchObject({
      value: { status: 'succeeded', stdout: 'yo\n' },
    });
    expect(await session.stub.getExecution(caller, late.id)).toMatchObject({
      value: { status: 'unknown', stdout: 'begin\n', receipt: { signatures: [{}, {}] } },
    });
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    expect(exported.ok && exported.value.receipts).toHaveLength(2);
  });
});
