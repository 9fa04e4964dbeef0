import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { dies } from '../../harness/dying-host.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import {
  call,
  caller,
  openSession,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let first: HostDouble;
let second: HostDouble;
beforeEach(async () => {
  first = await connectFakeHost();
  second = await connectFakeHost();
});
afterEach(() => {
  vi.useRealTimers();
  first.close();
  second.close();
});

const describeSession = async (id: string) => {
  const described = await sessionStub(id).describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
};

describe('a session whose host is lost', () => {
  test('fails, where it did not ask for another', async () => {
    const session = await openSession(first);
    await dies(first);
    await expect.poll(async () => (await describeSession(session.id)).error?.code).toBe('host_lost');
    expect(await session.stub.execute(call('x'))).toMatchObject({ ok: false, code: 'session_failed' });
  });

  test('goes on elsewhere with the next call, and says that its state is lost', async () => {
    const session = await openSession(first, { on_host_loss: 'rebuild' });
    await session.stub.execute(call('before'));
    await dies(first);
    expect(await session.stub.execute(call('after'))).toMatchObject({
      ok: true,
      value: { status: 'succeeded', stdout: 'after', state_lost: true },
    });
    expect(await describeSession(session.id)).toMatchObject({
      state: 'running',
      host_id: second.hostId,
      on_host_loss: 'rebuild',
    });
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    if (!exported.ok) throw new Error(exported.detail);
    expect(exported.value.keys.hosts.map(({ host_id }) => host_id)).toEqual([first.hostId, second.hostId]);
    const { receipts, keys } = exported.value;
    expect(receipts).toHaveLength(2);
    expect(await verifyChain(receipts, keys, session.id)).toMatchObject({ ok: true });
  });

  test('never runs again what had begun there, and runs what waited', async () => {
    first.script = (execution) => execution.started();
    const session = await openSession(first, { on_host_loss: 'rebuild' });
    const begun = session.stub.execute(call('begun'));
    await first.until(() => first.session(session.id).starts.size === 1);
    const waiting = session.stub.execute(call('waits'));
    await expect.poll(async () => (await describeSession(session.id)).executions.queued).toBe(1);
    await dies(first);
    expect(await begun).toMatchObject({ ok: false, code: 'host_lost' });
    expect(await waiting).toMatchObject({ ok: true, value: { status: 'succeeded', stdout: 'waits' } });
    const ran = second.commands.flatMap(({ claims }) => (claims.act === 'execute' ? [claims.exec] : []));
    expect(ran).toHaveLength(1);
  });
});

describe('a session that is to be made anew elsewhere, whose host dies', () => {
  test('in the middle of its suspension is not suspended there instead', async () => {
    const session = await openSession(first, { on_host_loss: 'rebuild' });
    first.answersSuspends = false;
    const suspending = session.stub.suspend(caller);
    await first.until(() => first.session(session.id).suspends.length === 1);
    await dies(first);
    expect(await suspending).toMatchObject({ ok: false, code: 'host_lost' });
    await expectGoesOn(session);
    expect(second.session(session.id).suspends).toEqual([]);
  });

  test('before it could pause runs on there', async () => {
    const session = await openSession(first, { on_host_loss: 'rebuild' });
    first.answersPauses = false;
    const pausing = session.stub.pause(caller);
    await first.until(() => first.commands.some(({ claims }) => claims.act === 'pause'));
    await dies(first);
    expect(await pausing).toMatchObject({ ok: false, code: 'host_lost' });
    await expectGoesOn(session);
  });

  async function expectGoesOn(session: TestSession): Promise<void> {
    expect(await session.stub.execute(call('after'))).toMatchObject({
      ok: true,
      value: { status: 'succeeded', stdout: 'after', state_lost: true },
    });
    expect(await describeSession(session.id)).toMatchObject({ state: 'running', host_id: second.hostId });
  }
});

describe('an attach that is lost with the control link that it was sent on', () => {
  test('is sent again, by the same grant', async () => {
    first.losesAttaches = 1;
    const session = await openSession(first);
    expect(await session.stub.execute(call('x'))).toMatchObject({ ok: true, value: { stdout: 'x' } });
    const attaches = first.commands.filter(({ claims }) => claims.act === 'attach');
    expect(attaches).toHaveLength(2);
    expect(new Set(attaches.map(({ claims }) => claims.jti)).size).toBe(1);
  });
});

describe('a session whose sandbox is gone', () => {
  test('gets another one at once where the agent died as it made the next', async () => {
    second.close();
    const session = await openSession(first);
    first.restartsInAttaches = 2;
    first.session(session.id).send({ type: 'sandbox_lost', reason: 'host_restarted' });
    expect(await session.stub.execute(call('x'))).toMatchObject({
      ok: true,
      value: { status: 'succeeded', stdout: 'x', state_lost: true },
    });
    const attaches = first.commands.filter(({ claims }) => claims.act === 'attach');
    expect(new Set(attaches.map(({ claims }) => claims.jti)).size).toBe(4);
  });

  test.each(['host_full', 'host_degraded'])(
    'moves on where its own host refuses a new one (%s)',
    async (code) => {
      const session = await openSession(first);
      first.refuseAttach = code;
      first.session(session.id).send({ type: 'sandbox_lost', reason: 'crashed' });
      expect(await session.stub.execute(call('x'))).toMatchObject({
        ok: true,
        value: { status: 'succeeded', state_lost: true },
      });
      expect((await describeSession(session.id)).host_id).toBe(second.hostId);
      // The former host says what it likes: it is not this session's any more.
      expect(await session.stub.execute(call('y'))).toMatchObject({ ok: true, value: { stdout: 'y' } });
    },
  );

  test('has the refusal as its answer when no host takes it', async () => {
    const session = await openSession(first);
    for (const host of [first, second]) host.refuseAttach = 'host_full';
    first.session(session.id).send({ type: 'sandbox_lost', reason: 'crashed' });
    expect(await session.stub.execute(call('x'))).toMatchObject({
      ok: true,
      value: { status: 'refused' },
    });
    for (const host of [first, second]) host.refuseAttach = undefined;
    expect(await session.stub.execute(call('y'))).toMatchObject({ ok: true, value: { stdout: 'y' } });
  });
});
