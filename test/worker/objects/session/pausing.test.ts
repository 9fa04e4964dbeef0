import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { api, problemIn } from '../../harness/api.ts';
import { assembled, EventReader, events, executeStream } from '../../harness/event-reader.ts';
import { eventually } from '../../harness/eventually.ts';
import { holdSession } from '../../harness/held-session.ts';
import { call, caller, sessionObject, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession((execution) => execution.started()));
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

const objectStub = () => sessionObject(session.id);
const acts = () => host.commands.map(({ claims }) => claims.act).filter((act) => act !== 'attach');

async function start(command: string, body: Record<string, unknown> = {}): Promise<ExecutionDouble> {
  const accepted = await session.stub.execute(call(command, { body: { detach: true, ...body } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const id = accepted.value.execution_id;
  await host.until(() => running.some((execution) => execution.id === id));
  const execution = running.find((candidate) => candidate.id === id);
  if (execution === undefined) throw new Error('not started');
  return execution;
}

async function state(): Promise<string> {
  const described = await session.stub.describe(caller);
  return described.ok ? described.value.state : described.code;
}

async function result(id: string) {
  const found = await session.stub.getExecution(caller, id);
  if (!found.ok) throw new Error(found.detail);
  return found.value;
}

/** The session's clocks as they would be when so much time has passed. */
async function later(ms: number): Promise<void> {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
  await runDurableObjectAlarm(objectStub());
}

describe('a paused session', () => {
  test('says so over the API, in the list and to who reads along, and goes on at the next byte', async () => {
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const stream = await executeStream(session, call('print'));
    await host.until(() => running.length === 1);
    await running[0]?.write('stdout', '1\n');
    await stream.until(({ data }) => data.event === 'stdout');
    const paused = await api('POST', `/v1/sessions/${session.id}/pause`, { token });
    expect(paused).toMatchObject({ status: 200, json: { state: 'paused', executions: { running: 1 } } });
    const told = await stream.until(({ data }) => data.event === 'paused');
    const list = await api('GET', '/v1/sessions?limit=100', { token });
    expect(list.json).toMatchObject({
      sessions: expect.arrayContaining([
        expect.objectContaining({ session_id: session.id, state: 'paused' }),
      ]),
    });
    // Who comes back meanwhile is told how things stand.
    const executionId = running[0]?.id ?? '';
    const second = new EventReader(await events(session, executionId, { lastEventId: told.id }));
    expect((await second.next())?.data.event).toBe('paused');
    const resumed = await api('POST', `/v1/sessions/${session.id}/resume`, { token });
    expect(resumed).toMatchObject({ status: 200, json: { state: 'running' } });
    await stream.until(({ data }) => data.event === 'resumed');
    await running[0]?.write('stdout', '2\n');
    await running[0]?.finish();
    expect(assembled(await stream.toEnd(), 'stdout')).toBe('1\n2\n');
    expect(assembled(await second.toEnd(), 'stdout')).toBe('2\n');
  });

  test('is paused once and resumed once, however often it is asked', async () => {
    const [first, second] = await Promise.all([session.stub.pause(caller), session.stub.pause(caller)]);
    expect([first, second]).toMatchObject([{ value: { state: 'paused' } }, { value: { state: 'paused' } }]);
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
    expect(acts()).toEqual(['pause', 'resume']);
  });

  test('keeps calls in its queue until it goes on, and refuses what cannot wait', async () => {
    await session.stub.pause(caller);
    const waiting = session.stub.execute(call('later'));
    const accepted = await session.stub.accept(call('also'));
    expect(accepted).toMatchObject({ value: { status: 'queued' } });
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const file = await api('GET', `/v1/sessions/${session.id}/files/x`, { token });
    expect(problemIn(file)).toMatchObject({ code: 'session_not_running', retryable: true });
    expect(acts()).toEqual(['pause']);
    await session.stub.resume(caller);
    await host.until(() => running.length === 1);
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded' } });
    await host.until(() => running.length === 2);
    await running[1]?.finish();
  });

  test('lets no deadline and no idle time pass, be it for a day', async () => {
    const execution = await start('slow', { timeout_ms: 1_000 });
    await session.stub.pause(caller);
    await later(86_400_000);
    expect([await state(), (await result(execution.id)).status]).toEqual(['paused', 'running']);
    await session.stub.resume(caller);
    await runDurableObjectAlarm(objectStub());
    expect([await state(), (await result(execution.id)).status]).toEqual(['running', 'running']);
    // From here on they count again.
    await later(1_000 + 4_000 + 1_000);
    expect((await result(execution.id)).status).toBe('unknown');
    await later(600_000);
    expect(await state()).toBe('not_found');
  });

  test('is still paused after an eviction, and goes on', async () => {
    const execution = await start('x');
    await session.stub.pause(caller);
    const double = host.session(session.id);
    await host.until(() => double.ackedSeq === double.lastSeq);
    await evictDurableObject(objectStub());
    expect(await state()).toBe('paused');
    const { deadlineAtMs: before } = await row(execution.id);
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
    expect((await row(execution.id)).deadlineAtMs).toBeGreaterThan(before ?? 0);
    await execution.finish();
    await host.until(() => double.ackedSeq === double.lastSeq);
    expect((await result(execution.id)).status).toBe('succeeded');
  });

  test('ends a call that is interrupted, and stays paused', async () => {
    const execution = await start('x');
    const queued = await session.stub.accept(call('queued'));
    await session.stub.pause(caller);
    expect(await session.stub.interrupt(caller, execution.id)).toMatchObject({ ok: true });
    await execution.interrupted;
    await execution.finish({ status: 'interrupted', exit_code: null });
    const double = host.session(session.id);
    await host.until(() => double.ackedSeq === double.lastSeq);
    expect((await result(execution.id)).status).toBe('interrupted');
    expect(await state()).toBe('paused');
    expect(await session.stub.interrupt(caller, null)).toMatchObject({ ok: true });
    expect((await result(queued.ok ? queued.value.execution_id : '')).status).toBe('cancelled');
    expect(running).toHaveLength(1);
  });

  test('is deleted like any other', async () => {
    const execution = await start('x');
    await session.stub.pause(caller);
    expect(await session.stub.destroy(caller)).toEqual({ ok: true, value: null });
    expect(await state()).toBe('not_found');
    expect(host.sessions.has(session.id)).toBe(false);
    expect(execution.id).not.toBe('');
  });
});

describe('a pause that its host does not carry out', () => {
  test('leaves the session as it was, with the reason', async () => {
    host.refusePauses = 'sandbox_failed';
    expect(await session.stub.pause(caller)).toMatchObject({ ok: false, code: 'sandbox_failed' });
    expect(await state()).toBe('running');
    host.refusePauses = undefined;
    expect(await session.stub.pause(caller)).toMatchObject({ ok: true });
  });

  test('is told so while the link is down, and the next one after it is back counts', async () => {
    const double = host.session(session.id);
    double.drop();
    await eventually(async () =>
      expect(await session.stub.pause(caller)).toMatchObject({ ok: false, code: 'host_unresponsive' }),
    );
    await double.connect();
    await host.until(() => double.isLinked);
    expect(await session.stub.pause(caller)).toMatchObject({ ok: true });
  });

  test('counts when it comes late: what the host says is the state', async () => {
    host.session(session.id).send({ type: 'paused' });
    await eventually(async () => expect(await state()).toBe('paused'));
    host.session(session.id).send({ type: 'resumed' });
    await eventually(async () => expect(await state()).toBe('running'));
  });
});

describe('a sandbox that is lost on pause', () => {
  test('ends what ran in it as unknown, and the session goes on with a new one that says so', async () => {
    const execution = await start('x');
    await session.stub.pause(caller);
    host.session(session.id).send({ type: 'sandbox_lost', reason: 'host_restarted' });
    await eventually(async () => expect((await result(execution.id)).status).toBe('unknown'));
    expect(await state()).toBe('paused');
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
    expect(acts()).not.toContain('resume');
    const next = session.stub.execute(call('next'));
    await host.until(() => running.length === 2);
    await running[1]?.finish();
    expect(await next).toMatchObject({ value: { status: 'succeeded', state_lost: true } });
  });

  test('with its host fails the session, whose call is unknown', async () => {
    const execution = await start('x');
    await session.stub.pause(caller);
    await session.stub.hostLost({ hostId: host.hostId });
    expect(await state()).toBe('error');
    expect(await result(execution.id)).toMatchObject({ status: 'unknown', reason: 'host_lost' });
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false, code: 'session_failed' });
  });
});

async function row(executionId: string): Promise<{ deadlineAtMs: number | null }> {
  return runInDurableObject(objectStub(), (_, context) => {
    const [found] = context.storage.sql
      .exec('SELECT deadlineAtMs FROM execution WHERE executionId = ?', executionId)
      .toArray();
    return { deadlineAtMs: found === undefined ? null : Number(found.deadlineAtMs) };
  });
}
