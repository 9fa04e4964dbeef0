import {
  abortAllDurableObjects,
  evictDurableObject,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import { HostObject } from '../../../../worker/objects/host/object.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import { type HostDouble, startAmong } from '../../../fixtures/host-double/host-double.ts';
import type { SessionDouble } from '../../../fixtures/host-double/session-double.ts';
import { storeSnapshot } from '../../../fixtures/host-double/snapshot-double.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { api, problemIn } from '../../harness/api.ts';
import { assembled, executeStream } from '../../harness/event-reader.ts';
import { eventually } from '../../harness/eventually.ts';
import { connectFakeHost, retireFakeHost } from '../../harness/fake-host.ts';
import {
  call,
  caller,
  openSession,
  sessionObject,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];
const hosts: HostDouble[] = [];

async function connect(): Promise<HostDouble> {
  const connected = await connectFakeHost({
    script: startAmong(running),
  });
  hosts.push(connected);
  return connected;
}

beforeEach(async () => {
  running = [];
  host = await connect();
  session = await openSession(host);
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await session.stub.destroy(caller);
  for (const connected of hosts.splice(0)) await retireFakeHost(connected);
});

const objectStub = () => sessionObject(session.id);
const indexStub = () => env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName(caller.tenant));

async function view() {
  const described = await session.stub.describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
}

/** What is stored of all snapshots, once what is to be removed has been. */
async function stored(): Promise<string[]> {
  await runDurableObjectAlarm(indexStub());
  return (await env.SNAPSHOTS.list({ prefix: `${caller.tenant}/` })).objects.map(({ key }) => key);
}

async function start(command: string): Promise<ExecutionDouble> {
  const accepted = await session.stub.execute(call(command, { body: { detach: true } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const id = accepted.value.execution_id;
  return eventually(() => {
    const execution = running.find((candidate) => candidate.id === id);
    if (execution === undefined) throw new Error('not started');
    return execution;
  });
}

/** Runs a call to its end. */
async function run(command: string) {
  const before = running.length;
  const waiting = session.stub.execute(call(command));
  await eventually(() => expect(running.length).toBe(before + 1));
  await running.at(-1)?.finish();
  const done = await waiting;
  if (!done.ok) throw new Error(`${done.code}: ${done.detail}`);
  return done.value;
}

describe('a suspended session', () => {
  test('holds no host, and a call brings it back with a new epoch and generation', async () => {
    await run('before');
    const suspended = await session.stub.suspend(caller);
    expect(suspended).toMatchObject({ value: { state: 'suspended', host_id: null, sandbox_id: null } });
    expect(await session.stub.suspend(caller)).toMatchObject({ ok: true });
    const former = host.session(session.id);
    await host.until(() => former.heard.some(({ type }) => type === 'fenced'));
    expect(former.suspends).toHaveLength(1);
    expect((await stored()).length).toBe(2);
    // Its host may die: it is nothing to this session.
    await session.stub.hostLost({ hostId: host.hostId });
    const done = await run('after');
    expect(done).toMatchObject({ status: 'succeeded', state_lost: false });
    const { attach, epoch } = host.session(session.id);
    expect(epoch).toBeGreaterThan(former.epoch);
    expect(attach.snapshot).toMatchObject({
      snapshot_id: former.suspends[0]?.snapshot_id,
      key: former.suspends[0]?.key,
      generation: 1,
      executions: 'continue',
    });
    expect(await view()).toMatchObject({ state: 'running', host_id: host.hostId, generation: 1 });
    // What it was made of is needed no more.
    await eventually(async () => expect(await stored()).toEqual([]));
    await session.stub.suspend(caller);
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running', generation: 2 } });
  });

  test('carries a call to another host: the next byte, one end, and receipts of both', async () => {
    await run('before');
    const stream = await executeStream(session, call('print'));
    await eventually(() => expect(running).toHaveLength(2));
    await running[1]?.write('stdout', '1\n');
    await stream.until(({ data }) => data.event === 'stdout');
    const other = await connect();
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const moved = await api('POST', `/v1/sessions/${session.id}/migrate`, { token });
    expect(moved).toMatchObject({ status: 200, json: { state: 'running', host_id: other.hostId } });
    await running[1]?.write('stdout', '2\n');
    await running[1]?.finish();
    const events = await stream.toEnd();
    expect(assembled(events, 'stdout')).toBe('1\n2\n');
    expect(events.at(-1)?.data).toMatchObject({ event: 'end', execution: { status: 'succeeded' } });
    await run('there');
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    if (!exported.ok) throw new Error(exported.detail);
    const { receipts, keys } = exported.value;
    expect(keys.hosts.map(({ host_id }) => host_id).sort()).toEqual([host.hostId, other.hostId].sort());
    expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
    expect(receipts).toHaveLength(3);
  });

  test('goes elsewhere though a call waits for it, and stays where it was where nobody else takes it', async () => {
    const stream = await executeStream(session, call('first'));
    await eventually(() => expect(running).toHaveLength(1));
    const waiting = session.stub.execute(call('second'));
    const other = await connect();
    expect(await session.stub.migrate(caller)).toMatchObject({ value: { host_id: other.hostId } });
    await running[0]?.finish();
    await stream.toEnd();
    await eventually(() => expect(running).toHaveLength(2));
    host.refuseAttach = 'host_full';
    expect(await session.stub.migrate(caller)).toMatchObject({ ok: false, code: 'no_host_available' });
    expect(await view()).toMatchObject({ state: 'running', host_id: other.hostId });
    await running[1]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded', state_lost: false } });
  });

  test('is tried again where a call is in the middle of its work and no host took it', async () => {
    const execution = await start('x');
    const other = await connect();
    for (const each of [host, other]) each.refuseAttach = 'host_full';
    expect(await session.stub.migrate(caller)).toMatchObject({ ok: false });
    expect((await view()).state).toBe('suspended');
    await evictDurableObject(objectStub());
    for (const each of [host, other]) each.refuseAttach = undefined;
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 6_000 });
    await runDurableObjectAlarm(objectStub());
    vi.useRealTimers();
    await eventually(async () => expect((await view()).state).toBe('running'));
    await execution.finish();
    expect(await session.stub.wait(caller, execution.id)).toMatchObject({ value: { status: 'succeeded' } });
  });

  test('ends a call of which the snapshot is damaged after a few tries, and stays where it is', async () => {
    const execution = await start('x');
    host.refuseAttach = 'snapshot_damaged';
    await session.stub.suspend(caller);
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false, code: 'snapshot_damaged' });
    const restores = () => host.commands.filter(({ claims }) => claims.act === 'attach').length - 1;
    let nowMs = Date.now();
    for (let tries = 2; tries <= 5; tries += 1) {
      expect(await session.stub.getExecution(caller, execution.id)).toMatchObject({
        value: { status: 'running' },
      });
      nowMs += 400_000;
      vi.useFakeTimers({ toFake: ['Date'], now: nowMs });
      await vi.waitFor(async () => {
        await runDurableObjectAlarm(objectStub());
        expect(restores()).toBe(tries);
      });
      vi.useRealTimers();
    }
    expect(await session.stub.wait(caller, execution.id)).toMatchObject({
      value: { status: 'unknown', reason: 'snapshot_damaged' },
    });
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs + 800_000 });
    await runDurableObjectAlarm(objectStub());
    vi.useRealTimers();
    expect(await view()).toMatchObject({ state: 'suspended', executions: { running: 0 } });
    expect(restores()).toBe(5);
    host.refuseAttach = undefined;
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
  });

  test('counts no time of a call that is in it, and says to a reader that it stands still', async () => {
    const stream = await executeStream(session, call('slow', { body: { timeout_ms: 1_000 } }));
    await eventually(() => expect(running).toHaveLength(1));
    await session.stub.suspend(caller);
    await stream.until(({ data }) => data.event === 'paused');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 86_400_000 });
    await runDurableObjectAlarm(objectStub());
    expect(await view()).toMatchObject({ state: 'suspended', executions: { running: 1 } });
    vi.useRealTimers();
    await session.stub.resume(caller);
    await stream.until(({ data }) => data.event === 'resumed');
    await running[0]?.finish();
    expect((await stream.toEnd()).at(-1)?.data).toMatchObject({ execution: { status: 'succeeded' } });
  });

  test('is woken by files, input and interrupts as well, also after an eviction', async () => {
    const execution = await start('reads');
    await session.stub.suspend(caller);
    await evictDurableObject(objectStub());
    const given = await session.stub.stdin(caller, execution.id, new TextEncoder().encode('x'), false);
    expect(given).toMatchObject({ ok: true });
    await eventually(() => expect(execution.stdin).toHaveLength(1));
    await session.stub.suspend(caller);
    await session.stub.interrupt(caller, execution.id);
    await execution.interrupted;
    await execution.finish({ status: 'interrupted', exit_code: null });
    await session.stub.suspend(caller);
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const listed = await api('DELETE', `/v1/sessions/${session.id}/files/x`, { token });
    expect(listed.status, listed.text).toBeLessThan(300);
    expect((await view()).state).toBe('running');
  });

  test('is deleted without a host, and nothing of it stays stored', async () => {
    await session.stub.suspend(caller);
    expect((await stored()).length).toBe(2);
    host.close();
    expect(await session.stub.destroy(caller)).toEqual({ ok: true, value: null });
    await eventually(async () => expect(await stored()).toEqual([]));
  });

  test.each([
    { runsc_version: 'other' },
    { runsc_platform: 'other' },
    { cpu_features_sha256: 'e'.repeat(64) },
    { guest_sha256: 'e'.repeat(64) },
  ])('stays where it is while no host fits (%o), says why, and wakes when one does', async (other) => {
    await session.stub.suspend(caller);
    host.close();
    const unlike = await connect();
    unlike.close();
    unlike.traits = { ...unlike.traits, ...other };
    await unlike.connect();
    // Of the hosts that there ever were, one fits, and is away.
    const refused = await session.stub.execute(call('x'));
    expect(refused).toMatchObject({ ok: false, code: 'no_host_available' });
    expect((await view()).state).toBe('suspended');
    const fitting = await connect();
    expect(await run('x')).toMatchObject({ status: 'succeeded' });
    expect((await view()).host_id).toBe(fitting.hostId);
  });

  test('is not taken for restored where its host made an empty sandbox, or refused', async () => {
    await session.stub.suspend(caller);
    host.ignoresSnapshots = true;
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false, code: 'restore_failed' });
    expect((await view()).state).toBe('suspended');
    // Whatever that host made is told to end, by an epoch that no sandbox has.
    const acts = host.commands.map(({ claims }) => claims).filter(({ sid }) => sid === session.id);
    expect(acts.at(-1)).toMatchObject({ act: 'destroy', epoch: (acts.at(-2)?.epoch ?? 0) + 1 });
    host.ignoresSnapshots = false;
    host.refuseAttach = 'snapshot_damaged';
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false, code: 'snapshot_damaged' });
    host.refuseAttach = undefined;
    expect(await run('x')).toMatchObject({ status: 'succeeded', state_lost: false });
  });

  test('is still in its snapshot where the agent died that was restoring it, whatever that says of its calls', async () => {
    const execution = await start('x');
    await session.stub.suspend(caller);
    host.restartsInAttaches = 1;
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false });
    expect(await session.stub.getExecution(caller, execution.id)).toMatchObject({
      value: { status: 'running' },
    });
    expect(await session.stub.resume(caller)).toMatchObject({ value: { state: 'running' } });
    await execution.finish();
    expect(await session.stub.wait(caller, execution.id)).toMatchObject({ value: { status: 'succeeded' } });
    expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: false });
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    if (!exported.ok) throw new Error(exported.detail);
    expect(exported.value.receipts).toHaveLength(2);
  });

  test('is made so by itself where it was asked for, once nothing is going on', async () => {
    const idle = await openSession(host, { suspend_after_idle_s: 30 });
    const stub = sessionObject(idle.id);
    await runDurableObjectAlarm(stub);
    expect(await idle.stub.describe(caller)).toMatchObject({ value: { state: 'running' } });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 31_000 });
    await runDurableObjectAlarm(stub);
    expect(await idle.stub.describe(caller)).toMatchObject({ value: { state: 'suspended' } });
    // What ends an idle session does not end one that costs no host.
    vi.setSystemTime(Date.now() + 700_000);
    await runDurableObjectAlarm(stub);
    expect(await idle.stub.describe(caller)).toMatchObject({ value: { state: 'suspended' } });
    vi.setSystemTime(Date.now() + 31 * 86_400_000);
    await runDurableObjectAlarm(stub);
    expect(await idle.stub.describe(caller)).toMatchObject({ ok: false, code: 'not_found' });
  });
});

describe('a suspend that fails', () => {
  test('leaves the session running as it was, and nothing stored', async () => {
    const execution = await start('x');
    host.failSuspends = 'suspend_failed';
    expect(await session.stub.suspend(caller)).toMatchObject({ ok: false, code: 'suspend_failed' });
    expect((await view()).state).toBe('running');
    await execution.finish();
    host.failSuspends = undefined;
    expect(await run('y')).toMatchObject({ status: 'succeeded' });
    await eventually(async () => expect(await stored()).toEqual([]));
  });

  test('holds calls back until the host has answered, and no longer', async () => {
    const reads = await start('reads');
    host.answersSuspends = false;
    const suspending = session.stub.suspend(caller);
    const double = host.session(session.id);
    await host.until(() => double.suspends.length === 1);
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const path = `/v1/sessions/${session.id}/executions/${reads.id}/stdin`;
    const input = await api('POST', path, { token, body: { data: 'x' } });
    expect(problemIn(input).code).toBe('session_not_running');
    await reads.finish();
    running.length = 0;
    const waiting = session.stub.execute(call('x'));
    expect(await session.stub.accept(call('y'))).toMatchObject({ value: { status: 'queued' } });
    expect(running).toHaveLength(0);
    const snapshotId = double.suspends[0]?.snapshot_id ?? '';
    double.send({ type: 'suspend_failed', snapshot_id: snapshotId, code: 'no_such_code', detail: 'x' });
    expect(await suspending).toMatchObject({ ok: false, code: 'suspend_failed' });
    await host.until(() => running.length === 1);
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ ok: true });
    await host.until(() => running.length === 2);
    await running[1]?.finish();
  });

  test('because an eviction came before the host was told keeps nothing waiting', async () => {
    const snapshotId = `snp_${'a'.repeat(22)}`;
    const pending = { snapshotId, leaveRunning: false, atMs: Date.now(), isSent: false };
    await runInDurableObject(objectStub(), (_object, state) => {
      state.storage.sql.exec('UPDATE session SET pendingSnapshot = ?', JSON.stringify(pending));
    });
    await evictDurableObject(objectStub());
    expect(await run('x')).toMatchObject({ status: 'succeeded', state_lost: false });
    expect(await session.stub.suspend(caller)).toMatchObject({ ok: true });
  });

  test('because the sandbox was lost says so', async () => {
    host.answersSuspends = false;
    const suspending = session.stub.suspend(caller);
    const double = host.session(session.id);
    await host.until(() => double.suspends.length === 1);
    double.send({ type: 'sandbox_lost', reason: 'host_restarted' });
    expect(await suspending).toMatchObject({ ok: false, code: 'sandbox_failed' });
    expect(await run('x')).toMatchObject({ status: 'succeeded', state_lost: true });
  });
});

describe('the word of a host that all is stored', () => {
  test('does not move the session where it is of what was not asked, or was given up: the sandbox is lost', async () => {
    const execution = await start('x');
    const double = host.session(session.id);
    host.answersSuspends = false;
    const suspending = session.stub.suspend(caller);
    await host.until(() => double.suspends.length === 1);
    const snapshot_id = double.suspends[0]?.snapshot_id ?? '';
    double.send({ type: 'suspend_failed', snapshot_id, code: 'suspend_failed', detail: 'x' });
    expect(await suspending).toMatchObject({ ok: false, code: 'suspend_failed' });
    double.send({
      type: 'suspended',
      snapshot_id,
      manifest_sha256: 'a'.repeat(64),
      left_running: false,
      bytes: 1,
      stored_bytes: 1,
      image: host.images[0]?.digest ?? '',
      ...host.traits,
      executions: [],
    });
    expect(await session.stub.wait(caller, execution.id)).toMatchObject({
      value: { status: 'unknown', reason: 'suspended_too_late' },
    });
    await host.until(() => double.heard.some(({ type }) => type === 'fenced'));
    expect((await view()).state).toBe('running');
    expect(await run('y')).toMatchObject({ status: 'succeeded', state_lost: true });
  });

  test('moves the session also when it comes over a link that was lost meanwhile', async () => {
    await run('before');
    const double = host.session(session.id);
    double.sending = false;
    const suspending = session.stub.suspend(caller);
    await host.until(() => double.suspends.length === 1);
    double.drop();
    double.sending = true;
    await double.connect();
    expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
    expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: false });
  });

  test('comes though the first asking was lost with its link: it is asked again', async () => {
    const double = host.session(session.id);
    host.hearsSuspends = false;
    const suspending = session.stub.suspend(caller);
    await host.until(() => double.unheardSuspends === 1);
    host.hearsSuspends = true;
    double.drop();
    await double.connect();
    expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
    expect(double.suspends).toHaveLength(1);
    expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: false });
  });

  describe('need not come where all is stored and the sandbox is gone:', () => {
    let double: SessionDouble;
    let execution: ExecutionDouble;
    let suspending: Promise<unknown>;

    beforeEach(async () => {
      await run('before');
      execution = await start('x');
      host.answersSuspends = false;
      suspending = session.stub.suspend(caller).catch((error: unknown) => error);
      double = host.session(session.id);
      await host.until(() => double.suspends.length === 1);
      const [payload] = double.suspends;
      if (payload === undefined) throw new Error('no suspend came');
      await storeSnapshot(double, payload);
    });

    async function expectInSnapshot(reason: string): Promise<void> {
      expect(await session.stub.wait(caller, execution.id)).toMatchObject({
        value: { status: 'unknown', reason },
      });
      await eventually(async () => expect(await view()).toMatchObject({ state: 'suspended', host_id: null }));
      expect((await stored()).length).toBe(2);
      expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: false });
      // What ran in it has ended here, and is not to go on.
      const { attach } = host.session(session.id);
      expect(attach.snapshot).toMatchObject({
        snapshot_id: double.suspends[0]?.snapshot_id,
        executions: 'stop',
      });
      expect(await view()).toMatchObject({ state: 'running', generation: 1 });
    }

    test('the session is in the snapshot where its host was started again', async () => {
      double.send({ type: 'sandbox_lost', reason: 'host_restarted' });
      expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
      await expectInSnapshot('host_restarted');
    });

    test('so it is where its host is dead', async () => {
      await session.stub.hostLost({ hostId: host.hostId });
      expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
      await expectInSnapshot('host_lost');
    });

    test('its next host knows of it, however long the one before takes to be told', async () => {
      const told = { end: 0, gone: 0 };
      // oxlint-disable-next-line typescript/unbound-method -- each is called with the object that it is of
      const { destroy, forget } = HostObject.prototype;
      vi.spyOn(HostObject.prototype, 'destroy').mockImplementation(async function (
        this: HostObject,
        command,
      ) {
        await scheduler.wait(1_000);
        told.end += 1;
        return destroy.call(this, command);
      });
      vi.spyOn(HostObject.prototype, 'forget').mockImplementation(async function (this: HostObject, gone) {
        told.gone += 1;
        return forget.call(this, gone);
      });
      const waiting = run('waits');
      await eventually(async () => expect((await view()).executions.queued).toBe(1));
      double.send({ type: 'sandbox_lost', reason: 'host_restarted' });
      expect(await waiting).toMatchObject({ status: 'succeeded', state_lost: false });
      await eventually(() => expect(told).toEqual({ end: 1, gone: 1 }));
      await suspending;
      const host = env.HOST.get(env.HOST.idFromName((await view()).host_id ?? ''));
      const hosted = await runInDurableObject(host, (_object, { storage }) =>
        storage.sql.exec('SELECT session_id FROM session').toArray(),
      );
      expect(hosted).toContainEqual({ session_id: session.id });
    });

    test('it asks no host with other programs for it', async () => {
      await session.stub.hostLost({ hostId: host.hostId });
      expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
      host.close();
      const unlike = await connect();
      unlike.close();
      unlike.traits = { ...unlike.traits, guest_sha256: 'e'.repeat(64) };
      await unlike.connect();
      const refused = await session.stub.execute(call('x'));
      expect(refused).toMatchObject({ ok: false, code: 'no_host_available' });
      await connect();
      expect(await run('x')).toMatchObject({ status: 'succeeded', state_lost: false });
    });

    test('so it is where the object dies between', async () => {
      await runInDurableObject(objectStub(), (_object, state) => {
        state.storage.sql.exec("UPDATE session SET sandbox = 'lost'");
      });
      await abortAllDurableObjects();
      expect(await suspending).toBeInstanceOf(Error);
      await host.until(() => host.controlEpoch === 0);
      await host.connect();
      session = { ...session, stub: sessionStub(session.id) };
      await expectInSnapshot('sandbox_lost');
    });
  });

  test('is kept by the index though it was not told: it asks the session', async () => {
    await session.stub.suspend(caller);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
    const [id] = [...new Set((await stored()).map((key) => key.split('/')[1]))];
    expect(id).toMatch(/^snp_/);
    expect(await session.stub.keeps(id ?? '')).toMatchObject({ snapshotId: id });
    vi.useRealTimers();
    expect(await run('after')).toMatchObject({ state_lost: false });
  });
});

describe('the index of snapshots', () => {
  test('lets a suspension go that no session holds, though nobody said so', async () => {
    await session.stub.suspend(caller);
    const [id = ''] = [...new Set((await stored()).map((key) => key.split('/')[1]))];
    // As if the word of the session had been lost.
    await runInDurableObject(objectStub(), (_object, state) => {
      state.storage.sql.exec("UPDATE session SET snapshot = NULL, state = 'error'");
    });
    await evictDurableObject(objectStub());
    expect((await stored()).length).toBe(2);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_700_000 });
    expect(await session.stub.keeps(id)).toBeNull();
    expect(await stored()).toEqual([]);
  });

  test('looks again for chunks of a released one that came after its bytes were removed', async () => {
    await session.stub.suspend(caller);
    const keys = await stored();
    await run('after');
    await eventually(async () => expect(await stored()).toEqual([]));
    await env.SNAPSHOTS.put(keys[0] ?? '', 'late');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 1_900_000 });
    // The look before may be telling the tenant still of what was removed.
    await eventually(async () => expect(await stored()).toEqual([]));
  });
});

describe('a session that waits for its pause to end', () => {
  test('is suspended from there, but not while calls wait for it', async () => {
    await session.stub.pause(caller);
    const waiting = session.stub.execute(call('x'));
    const refused = await session.stub.suspend(caller);
    expect(refused).toMatchObject({ ok: false, code: 'session_not_running' });
    await session.stub.resume(caller);
    await host.until(() => running.length === 1);
    await running[0]?.finish();
    await waiting;
    await session.stub.pause(caller);
    expect(await session.stub.suspend(caller)).toMatchObject({ value: { state: 'suspended' } });
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const paused = await api('POST', `/v1/sessions/${session.id}/pause`, { token });
    expect(problemIn(paused).code).toBe('session_not_running');
  });
});
