import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { type Session, SessionSchema } from '../../../shared/session.ts';
import { HostObject } from '../../../worker/objects/host/object.ts';
import { MAX_RESTORE_POINTS } from '../../../worker/objects/session/restore-points/restore-points.ts';
import { MAX_SNAPSHOTS } from '../../../worker/objects/snapshots/object.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { connectClient } from '../mcp/clients.ts';

const TENANT = 'rollback-tenant';
/** By one alarm of the index. */
const SWEPT_AT_ONCE = 8;
let host: HostDouble;
let begun: ExecutionDouble[];
let sessionId: string;

const indexStub = () => env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName(TENANT));

async function ask(method: string, path: string, body?: object) {
  const token = await tokenOf({ claims: { tenant: TENANT, sub: 'alice' } });
  return api(method, path, { token, ...(body === undefined ? {} : { body }) });
}

async function open(body: object): Promise<string> {
  const answer = await ask('POST', '/v1/sessions', body);
  expect(answer.status, answer.text).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

async function view(): Promise<Session> {
  return SessionSchema.parse((await ask('GET', `/v1/sessions/${sessionId}`)).json);
}

async function start(command: string, more: object = {}): Promise<Execution> {
  const body = { tool_name: 'shell', arguments: { command }, detach: true, ...more };
  const answer = await ask('POST', `/v1/sessions/${sessionId}/execute`, body);
  expect(answer.status, answer.text).toBe(202);
  return ExecutionSchema.parse(answer.json);
}

async function begins({ execution_id: id }: Execution): Promise<ExecutionDouble> {
  return eventually(() => {
    const found = begun.find((one) => one.id === id);
    if (found === undefined) throw new Error('it has not begun');
    return found;
  });
}

async function run(command: string, end: Parameters<ExecutionDouble['finish']>[0] = {}): Promise<Execution> {
  const started = await start(command);
  await (await begins(started)).finish(end);
  return ended(started);
}

async function ended({ execution_id: id }: Execution): Promise<Execution> {
  return eventually(async () => {
    const shown = ExecutionSchema.parse(
      (await ask('GET', `/v1/sessions/${sessionId}/executions/${id}`)).json,
    );
    expect(shown.finished_at).not.toBeNull();
    return shown;
  });
}

const runs = () => eventually(async () => expect((await view()).state).toBe('running'));

/** Snapshots whose bytes are there, once what is to be removed has been. */
async function stored(): Promise<string[]> {
  await runDurableObjectAlarm(indexStub());
  const { objects } = await env.SNAPSHOTS.list({ prefix: `${TENANT}/` });
  return [...new Set(objects.map(({ key }) => key.split('/')[1] ?? ''))];
}

const FAILURES = [
  ['failed', { status: 'failed', exit_code: 1 }],
  ['timeout', { status: 'timeout', exit_code: null }],
  ['oom', { status: 'oom', exit_code: null, state_lost: true }],
  ['crashed', { status: 'crashed', exit_code: null, state_lost: true }],
] as const;

beforeEach(async () => {
  begun = [];
  host = await connectFakeHost({
    script: (execution) => {
      begun.push(execution);
      execution.started();
    },
  });
});
afterEach(async () => {
  await ask('DELETE', `/v1/sessions/${sessionId}`);
  await eventually(async () => expect(await stored()).toEqual([]));
  host.close();
});

describe('a session that is taken back where a call fails', () => {
  beforeEach(async () => {
    sessionId = await open({ rollback: 'on_failure' });
  });

  test('has a snapshot before each call, of which the latest few are kept', async () => {
    expect((await view()).rollback).toBe('on_failure');
    for (let n = 1; n <= MAX_RESTORE_POINTS + 2; n += 1) {
      expect(await run(`call ${n}`)).toMatchObject({ status: 'succeeded' });
      expect(host.session(sessionId).suspends).toHaveLength(n);
    }
    expect(host.session(sessionId).suspends.every(({ leave_running }) => leave_running)).toBe(true);
    expect(await view()).toMatchObject({ state: 'running', generation: 0 });
    await eventually(async () => expect(await stored()).toHaveLength(MAX_RESTORE_POINTS));
    expect((await ask('GET', '/v1/snapshots')).json).toMatchObject({ snapshots: [] });
  });

  test('is known to the host that it comes to, however long the one before takes to be told', async () => {
    const told = { end: 0, gone: 0 };
    // oxlint-disable-next-line typescript/unbound-method -- each is called with the object that it is of
    const { destroy, forget } = HostObject.prototype;
    vi.spyOn(HostObject.prototype, 'destroy').mockImplementation(async function (this: HostObject, command) {
      await scheduler.wait(1_000);
      told.end += 1;
      return destroy.call(this, command);
    });
    vi.spyOn(HostObject.prototype, 'forget').mockImplementation(async function (this: HostObject, gone) {
      told.gone += 1;
      return forget.call(this, gone);
    });
    const failing = await start('fails');
    await (await begins(failing)).finish({ status: 'failed', exit_code: 1 });
    expect(await ended(failing)).toMatchObject({ rolled_back: true });
    expect(await run('next')).toMatchObject({ status: 'succeeded' });
    await eventually(() => expect(told).toEqual({ end: 1, gone: 1 }));
    vi.restoreAllMocks();
    const object = env.HOST.get(env.HOST.idFromName((await view()).host_id ?? ''));
    const hosted = await runInDurableObject(object, (_object, { storage }) =>
      storage.sql.exec('SELECT session_id FROM session').toArray(),
    );
    expect(hosted).toContainEqual({ session_id: sessionId });
  });

  test('says so over MCP, too', async () => {
    const token = await tokenOf({ claims: { tenant: TENANT, sub: 'alice' } });
    const client = await connectClient('2026-07-28', token);
    const call = { name: 'shell', arguments: { command: 'x', session_id: sessionId } };
    const called = client.callTool(call);
    await eventually(() => expect(begun).toHaveLength(1));
    await begun[0]?.finish({ status: 'failed', exit_code: 1 });
    expect(await called).toMatchObject({
      isError: true,
      structuredContent: { status: 'failed', rolled_back: true },
    });
    await client.close();
    await runs();
  });

  test.each(FAILURES)('is as it was before a call that ends as %s', async (_name, end) => {
    await run('first');
    const failed = await run('second', end);
    expect(failed).toMatchObject({ status: end.status, rolled_back: true });
    await runs();
    const before = host.session(sessionId);
    expect(before.attach.snapshot).toMatchObject({ executions: 'stop', generation: 1 });
    expect(await run('third')).toMatchObject({ status: 'succeeded', state_lost: false });
    expect((await view()).generation).toBe(1);
    const receipts = await ask('GET', `/v1/sessions/${sessionId}/receipts`);
    expect(receipts.json).toMatchObject({ receipts: [{}, {}, {}] });
  });

  test('goes back to the snapshot that was made before that very call', async () => {
    await run('first');
    const started = await start('second');
    const double = await begins(started);
    const made = host.session(sessionId).suspends.at(-1)?.snapshot_id;
    await double.finish({ status: 'failed', exit_code: 1 });
    await runs();
    expect(host.session(sessionId).attach.snapshot?.snapshot_id).toBe(made);
  });

  test('keeps what a call did that was interrupted', async () => {
    const done = await run('stopped', { status: 'interrupted', exit_code: null });
    expect(done.status).toBe('interrupted');
    expect(done.rolled_back).toBeUndefined();
    expect(await view()).toMatchObject({ state: 'running', generation: 0 });
  });

  test('runs its calls one at a time, whatever their tools, and those that wait run in the state before', async () => {
    const first = await start('first');
    const double = await begins(first);
    const second = await start('second', { tool_name: 'python', arguments: { code: '1' } });
    await eventually(async () => expect((await view()).executions).toMatchObject({ queued: 1, running: 1 }));
    await double.finish({ status: 'failed', exit_code: 1 });
    await (await begins(second)).finish();
    expect(await ended(second)).toMatchObject({ status: 'succeeded', state_lost: false });
    expect((await view()).generation).toBe(1);
  });

  test('makes the snapshot again where an eviction came in its middle, and the call runs once', async () => {
    host.hearsSuspends = false;
    const waiting = await start('after an eviction');
    const linked = host.session(sessionId);
    await eventually(() => expect(linked.unheardSuspends).toBe(1));
    await evictDurableObject(env.SESSION.get(env.SESSION.idFromName(`${TENANT}:${sessionId}`)));
    host.hearsSuspends = true;
    linked.drop();
    await linked.connect();
    await (await begins(waiting)).finish();
    expect(await ended(waiting)).toMatchObject({ status: 'succeeded' });
    expect(begun).toHaveLength(1);
    // What the object no longer knew of is found by the index when it is old enough.
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 7_200_000 });
    await runDurableObjectAlarm(indexStub());
    vi.useRealTimers();
  });

  test('runs no call that it could not take back', async () => {
    host.failSuspends = 'suspend_failed';
    const refused = await ended(await start('never runs'));
    expect(refused).toMatchObject({ status: 'refused', reason: 'suspend_failed' });
    expect(begun).toHaveLength(0);
    host.failSuspends = undefined;
    expect(await run('runs')).toMatchObject({ status: 'succeeded' });
  });

  test('lets its own older snapshots go where its tenant has no room for one more', async () => {
    const first = await run('first');
    const index = env.SNAPSHOT_INDEX.getByName(TENANT);
    const others = Array.from({ length: MAX_SNAPSHOTS }, (_, n) => ({
      snapshotId: `snp_${String(n).padStart(22, '0')}`,
      sessionId,
      tenant: TENANT,
      subject: 'alice',
      kind: 'fork' as const,
      name: '',
    }));
    const taken = await Promise.all(others.map((row) => index.begin(row)));
    const held = others.filter((_, n) => taken[n]?.ok === true);
    expect(held.length).toBeLessThan(MAX_SNAPSHOTS);
    expect(await run('second')).toMatchObject({ status: 'succeeded' });
    const path = `/v1/sessions/${sessionId}/rollback`;
    const gone = await ask('POST', path, { execution_id: first.execution_id });
    expect(problemIn(gone).code).toBe('not_found');
    for (const row of held) await index.release(row);
    for (let swept = 0; swept < MAX_SNAPSHOTS; swept += SWEPT_AT_ONCE)
      await runDurableObjectAlarm(indexStub());
  });

  test('goes back to where it was before a call that succeeded, when it is asked to', async () => {
    const first = await run('first');
    const point = host.session(sessionId).suspends.at(-1)?.snapshot_id;
    await run('second');
    const back = await ask('POST', `/v1/sessions/${sessionId}/rollback`, {
      execution_id: first.execution_id,
    });
    expect(back).toMatchObject({ status: 200, json: { state: 'running', generation: 1 } });
    expect(host.session(sessionId).attach.snapshot?.snapshot_id).toBe(point);
  });

  test('ends what it leaves at a host whose link to it is down', async () => {
    const first = await run('first');
    const left = host.session(sessionId);
    left.drop();
    const path = `/v1/sessions/${sessionId}/rollback`;
    const back = await ask('POST', path, { execution_id: first.execution_id });
    expect(back).toMatchObject({ status: 200, json: { state: 'running', generation: 1 } });
    const told = host.commands.filter(({ claims }) => claims.sid === sessionId && claims.act === 'destroy');
    expect(told.map(({ claims }) => claims.epoch)).toEqual([left.epoch + 1]);
    expect(host.session(sessionId)).not.toBe(left);
  });

  test('is forked into sessions that are taken back too', async () => {
    const forked = await ask('POST', `/v1/sessions/${sessionId}/fork`, {});
    expect(forked.json).toMatchObject({ sessions: [{ rollback: 'on_failure' }] });
    const { sessions } = forked.json as { sessions: { session_id: string }[] };
    for (const { session_id: id } of sessions) await ask('DELETE', `/v1/sessions/${id}`);
  });
});

describe('one call that is taken back where it fails', () => {
  beforeEach(async () => {
    sessionId = await open({});
  });

  test('has a snapshot, which its neighbours have not', async () => {
    await run('without');
    expect(host.session(sessionId).suspends).toHaveLength(0);
    const asked = await start('with', { rollback: 'on_failure' });
    await (await begins(asked)).finish({ status: 'failed', exit_code: 2 });
    expect(await ended(asked)).toMatchObject({ status: 'failed', exit_code: 2, rolled_back: true });
    await runs();
    const kept = await run('fails', { status: 'failed', exit_code: 1 });
    expect(kept.rolled_back).toBeUndefined();
    expect((await view()).generation).toBe(1);
  });

  test('waits for what runs, and nothing begins beside it', async () => {
    const first = await start('runs');
    const double = await begins(first);
    const alone = await start('alone', {
      tool_name: 'python',
      arguments: { code: '1' },
      rollback: 'on_failure',
    });
    const behind = await start('behind', { tool_name: 'node', arguments: { code: '1' } });
    await eventually(async () => expect((await view()).executions).toMatchObject({ queued: 2 }));
    await double.finish();
    const second = await begins(alone);
    expect((await view()).executions).toMatchObject({ queued: 1, running: 1 });
    await second.finish();
    await (await begins(behind)).finish();
    expect(await ended(behind)).toMatchObject({ status: 'succeeded' });
  });

  test('before which no snapshot was made can not be gone back to', async () => {
    const done = await run('without');
    const path = `/v1/sessions/${sessionId}/rollback`;
    const refused = await ask('POST', path, { execution_id: done.execution_id });
    expect([refused.status, problemIn(refused).code]).toEqual([404, 'not_found']);
    for (const body of [{}, { execution_id: done.execution_id, snapshot_id: `snp_${'a'.repeat(22)}` }]) {
      expect(problemIn(await ask('POST', path, body)).code).toBe('invalid_request');
    }
  });
});
