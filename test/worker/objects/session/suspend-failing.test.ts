/** A suspend that fails, and what a host may still say of it. */
import {
  abortAllDurableObjects,
  evictDurableObject,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest';
import { HostObject } from '../../../../worker/objects/host/object.ts';
import { SUSPEND_PATIENCE_MS } from '../../../../worker/objects/session/alarm/agenda.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { SessionDouble } from '../../../fixtures/host-double/session-double.ts';
import { storeSnapshot } from '../../../fixtures/host-double/snapshot-double.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { api, problemIn } from '../../harness/api.ts';
import { eventually } from '../../harness/eventually.ts';
import { call, caller } from '../../harness/sessions.ts';
import {
  connect,
  findSessionAgain,
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

  describe('is waited for where its host is back before the storage has answered:', () => {
    let double: SessionDouble;
    let suspending: Promise<unknown>;
    let get: MockInstance;

    beforeEach(async () => {
      await run('before');
      host.answersSuspends = false;
      suspending = session.stub.suspend(caller);
      double = host.session(session.id);
      await host.until(() => double.suspends.length === 1);
      get = vi.spyOn(env.SNAPSHOTS, 'get').mockRejectedValue(new Error('down'));
      double.drop();
    });

    async function comeBack(): Promise<void> {
      await double.connect();
      await host.until(() => double.heard.filter(({ type }) => type === 'welcome').length === 2);
    }

    /** It is stored nowhere yet, which says nothing of what a host will say that lives. */
    async function expectGoesOn(): Promise<void> {
      get.mockRestore();
      await runDurableObjectAlarm(objectStub());
      expect(await view()).toMatchObject({ state: 'running' });
      const snapshotId = double.suspends[0]?.snapshot_id ?? '';
      double.send({ type: 'suspend_failed', snapshot_id: snapshotId, code: 'suspend_failed', detail: 'x' });
      expect(await suspending).toMatchObject({ ok: false, code: 'suspend_failed' });
      expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: false });
    }

    test('after the storage was asked', async () => {
      await session.stub.hostLost({ hostId: host.hostId });
      await comeBack();
      await expectGoesOn();
    });

    test('while the storage is asked', async () => {
      const storage = { isAsked: false, mayAnswer: false };
      get.mockImplementation(async () => {
        storage.isAsked = true;
        await eventually(() => expect(storage.mayAnswer).toBe(true));
        return null;
      });
      const losing = session.stub.hostLost({ hostId: host.hostId });
      await eventually(() => expect(storage.isAsked).toBe(true));
      await comeBack();
      storage.mayAnswer = true;
      await losing;
      await expectGoesOn();
    });
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

    describe('where the storage does not answer', () => {
      let get: MockInstance;
      beforeEach(() => {
        get = vi.spyOn(env.SNAPSHOTS, 'get').mockRejectedValue(new Error('down'));
      });

      /** So many looks later it is where it was. */
      async function expectUndecided(): Promise<void> {
        for (const looks of [1, 2, 3]) {
          await eventually(() => expect(get.mock.calls.length).toBeGreaterThanOrEqual(looks));
          await runDurableObjectAlarm(objectStub());
        }
        expect(await view()).toMatchObject({ state: 'running' });
        expect((await stored()).length).toBe(2);
      }

      test.each([
        ['host_restarted', async () => double.send({ type: 'sandbox_lost', reason: 'host_restarted' })],
        ['host_lost', async () => session.stub.hostLost({ hostId: host.hostId })],
      ])('nothing is given up until it does (%s)', async (reason, end) => {
        await end();
        await expectUndecided();
        get.mockRestore();
        await runDurableObjectAlarm(objectStub());
        expect(await suspending).toMatchObject({ value: { state: 'suspended' } });
        await expectInSnapshot(reason);
      });

      test('for ten minutes, the state is lost', async () => {
        double.send({ type: 'sandbox_lost', reason: 'host_restarted' });
        await expectUndecided();
        vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + SUSPEND_PATIENCE_MS });
        await runDurableObjectAlarm(objectStub());
        expect(await suspending).toMatchObject({ ok: false, code: 'sandbox_failed' });
        vi.useRealTimers();
        get.mockRestore();
        expect(await run('after')).toMatchObject({ status: 'succeeded', state_lost: true });
        await eventually(async () => expect(await stored()).toEqual([]));
      });
    });

    test('so it is where the object dies between', async () => {
      await runInDurableObject(objectStub(), (_object, state) => {
        state.storage.sql.exec("UPDATE session SET sandbox = 'lost'");
      });
      await abortAllDurableObjects();
      expect(await suspending).toBeInstanceOf(Error);
      await host.until(() => host.controlEpoch === 0);
      await host.connect();
      findSessionAgain();
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
