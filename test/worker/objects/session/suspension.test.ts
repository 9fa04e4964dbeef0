import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { api, problemIn } from '../../harness/api.ts';
import { assembled, executeStream } from '../../harness/event-reader.ts';
import { eventually } from '../../harness/eventually.ts';
import { call, caller, openSession, sessionObject, WHOLE_CHAIN } from '../../harness/sessions.ts';
import {
  connect,
  host,
  objectStub,
  run,
  running,
  session,
  start,
  stored,
  useSuspendableSession,
  view,
} from '../../harness/suspendable-session.ts';

useSuspendableSession();

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

  test('comes back to the host that it was on, which may have kept it, though another one is emptier', async () => {
    const beside = await openSession(host);
    await connect();
    for (const _ of [1, 2, 3]) {
      await session.stub.suspend(caller);
      expect(await session.stub.resume(caller)).toMatchObject({ value: { host_id: host.hostId } });
    }
    await beside.stub.destroy(caller);
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
      await eventually(async () => {
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

  test('is let go by the host that stored it where it is deleted soon, or comes back elsewhere', async () => {
    const acts = () => host.commands.flatMap(({ claims }) => (claims.sid === session.id ? claims : []));
    const other = await connect();
    expect(await session.stub.migrate(caller)).toMatchObject({ value: { host_id: other.hostId } });
    await eventually(() => expect(acts().at(-1)).toMatchObject({ act: 'destroy' }));
    expect(await session.stub.migrate(caller)).toMatchObject({ value: { host_id: host.hostId } });
    await session.stub.suspend(caller);
    const before = acts().length;
    await session.stub.destroy(caller);
    await eventually(() => expect(acts().slice(before)).toMatchObject([{ act: 'destroy' }]));
  });

  test('is not let go by a host that was only full', async () => {
    await session.stub.suspend(caller);
    host.refuseAttach = 'host_full';
    expect(await session.stub.resume(caller)).toMatchObject({ ok: false, code: 'host_full' });
    host.refuseAttach = undefined;
    expect(await session.stub.resume(caller)).toMatchObject({ value: { host_id: host.hostId } });
    const acts = host.commands.flatMap(({ claims }) => (claims.sid === session.id ? claims.act : []));
    expect(acts.slice(-2)).toEqual(['attach', 'attach']);
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
