import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { DOUBLE_TRAITS } from '../../../fixtures/host-double/snapshot-double.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { dies } from '../../harness/dying-host.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { SessionEventReader } from '../../harness/session-events.ts';
import { call, caller, openSession, type TestSession } from '../../harness/sessions.ts';

let first: HostDouble;
let second: HostDouble;
let session: TestSession;

beforeEach(async () => {
  first = await connectFakeHost();
  second = await connectFakeHost();
  session = await openSession(first, { on_host_loss: 'rebuild' });
});
afterEach(async () => {
  vi.useRealTimers();
  await session.stub.destroy(caller);
  // Dead, not only gone: a host that may come back is one that could restore the snapshots of the next test.
  for (const host of [first, second]) await dies(host);
});

async function view() {
  const described = await session.stub.describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
}

async function run(command: string, body: Record<string, unknown> = {}) {
  const done = await session.stub.execute(call(command, { body }));
  if (!done.ok) throw new Error(`${done.code}: ${done.detail}`);
  return done.value;
}

async function keep(name: string): Promise<string> {
  const made = await session.stub.snapshot(caller, { kind: 'named', name });
  if (!made.ok) throw new Error(`${made.code}: ${made.detail}`);
  return made.value.snapshotId;
}

const runs = () => expect.poll(async () => (await view()).state).toBe('running');
const runsElsewhere = () =>
  expect.poll(async () => view()).toMatchObject({ state: 'running', host_id: second.hostId });

/** What the sandbox was made of that the second host has of the session. */
const origin = () => second.session(session.id).attach.snapshot?.snapshot_id;

async function lossTold() {
  const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
  const reader = await SessionEventReader.open(session.id, token);
  const { event } = await reader.until('session.host_lost');
  await reader.cancel();
  return event;
}

const kept = async (): Promise<string[]> =>
  (await env.SNAPSHOTS.list({ prefix: `${caller.tenant}/` })).objects.map(({ key }) => key);

describe('a session that is to be rebuilt, whose host is lost', () => {
  test('goes on from its last snapshot on another host at once, and says so', async () => {
    await keep('older');
    const before = await run('before');
    const fromMs = Date.now();
    const snapshotId = await keep('newer');
    const after = await run('after');
    first.script = (execution) => execution.started();
    const running = session.stub.execute(call('runs'));
    await first.until(() => first.session(session.id).starts.size === 3);
    await dies(first);
    expect(await running).toMatchObject({ ok: false, code: 'host_lost' });
    await runsElsewhere();
    expect(second.session(session.id).attach.snapshot).toMatchObject({
      snapshot_id: snapshotId,
      executions: 'stop',
      generation: 1,
    });
    const told = await lossTold();
    if (told.type !== 'session.host_lost') throw new Error('another event');
    expect(told.data).toMatchObject({
      state: 'suspended',
      host_id: null,
      from_host_id: first.hostId,
      snapshot_id: snapshotId,
    });
    const takenAtMs = Date.parse(told.data.snapshot_created_at ?? '');
    expect(takenAtMs).toBeGreaterThanOrEqual(fromMs - 1);
    expect(takenAtMs).toBeLessThanOrEqual(Date.parse(told.timestamp) + 46_000);
    expect(await run('next')).toMatchObject({ status: 'succeeded', stdout: 'next', state_lost: true });
    expect(await run('one more')).toMatchObject({ state_lost: false });
    const listed = await session.stub.listExecutions(caller, { limit: 10 });
    if (!listed.ok) throw new Error(listed.detail);
    expect(listed.value.executions.map(({ status, reason }) => [status, reason])).toEqual([
      ['succeeded', null],
      ['succeeded', null],
      ['unknown', 'host_lost'],
      ['succeeded', null],
      ['succeeded', null],
    ]);
    expect(listed.value.executions.slice(3).map((one) => one.execution_id)).toEqual([
      after.execution_id,
      before.execution_id,
    ]);
  });

  test('runs what waited there, and never again what had begun', async () => {
    await keep('point');
    first.script = (execution) => execution.started();
    const begun = session.stub.execute(call('begun'));
    await first.until(() => first.session(session.id).starts.size === 1);
    const waiting = session.stub.execute(call('waits'));
    await expect.poll(async () => (await view()).executions.queued).toBe(1);
    await dies(first);
    expect(await begun).toMatchObject({ ok: false, code: 'host_lost' });
    expect(await waiting).toMatchObject({ ok: true, value: { stdout: 'waits', state_lost: true } });
    expect(second.session(session.id).starts.size).toBe(1);
  });

  test('goes on from the snapshot before a call that asked for one', async () => {
    await keep('older');
    await run('careful', { rollback: 'on_failure' });
    const point = first.session(session.id).suspends.at(-1)?.snapshot_id;
    await dies(first);
    await runsElsewhere();
    expect(origin()).toBe(point);
  });

  test('does not go back to what a rollback gave up', async () => {
    const older = await keep('older');
    await keep('given up');
    expect(await session.stub.rollBack(caller, { snapshot_id: older })).toMatchObject({ ok: true });
    const { host_id: hostId } = await view();
    const [host, other] = hostId === first.hostId ? [first, second] : [second, first];
    await dies(host);
    await runs();
    expect((await view()).host_id).toBe(other.hostId);
    expect(other.session(session.id).attach.snapshot?.snapshot_id).toBe(older);
  });

  test('goes on from the one before, where the last was deleted', async () => {
    const older = await keep('older');
    const newer = await keep('newer');
    const index = env.SNAPSHOT_INDEX.getByName(caller.tenant);
    expect(await index.remove(caller.subject, newer)).toMatchObject({ ok: true });
    await dies(first);
    await runsElsewhere();
    expect(origin()).toBe(older);
  });

  test('goes on from its last suspension, which is kept for that until it ends', async () => {
    expect(await session.stub.suspend(caller)).toMatchObject({ ok: true });
    const suspension = first.session(session.id).suspends[0]?.snapshot_id;
    expect(await session.stub.resume(caller)).toMatchObject({ ok: true });
    const { host_id: hostId } = await view();
    const [host, other] = hostId === first.hostId ? [first, second] : [second, first];
    await dies(host);
    await expect.poll(async () => (await view()).host_id).toBe(other.hostId);
    expect(other.session(session.id).attach.snapshot).toMatchObject({
      snapshot_id: suspension,
      executions: 'stop',
    });
    expect((await kept()).some((key) => key.includes(suspension ?? ''))).toBe(true);
    expect(await session.stub.keeps(suspension ?? '')).toMatchObject({ snapshotId: suspension });
    await session.stub.destroy(caller);
    expect(await session.stub.keeps(suspension ?? '')).toBeNull();
  });

  test('begins empty where no host could restore any, and says that too', async () => {
    await keep('point');
    second.traits = { ...DOUBLE_TRAITS, runsc_version: 'another' };
    second.close();
    await second.connect();
    await dies(first);
    expect(await run('next')).toMatchObject({ stdout: 'next', state_lost: true });
    expect(second.session(session.id).attach.snapshot).toBeNull();
    expect(await lossTold()).toMatchObject({
      data: { state: 'running', from_host_id: first.hostId, snapshot_id: null, snapshot_created_at: null },
    });
  });

  test('stays at the snapshot while no host has room, and the next call brings it back', async () => {
    const snapshotId = await keep('point');
    second.refuseAttach = 'host_full';
    await dies(first);
    await expect.poll(async () => (await view()).state).toBe('suspended');
    await second.until(() => second.commands.some(({ claims }) => claims.act === 'attach'));
    await expect
      .poll(() => session.stub.execute(call('too early')))
      .toMatchObject({ ok: false, code: 'host_full' });
    second.refuseAttach = undefined;
    expect(await run('next')).toMatchObject({ stdout: 'next', state_lost: true });
    expect(origin()).toBe(snapshotId);
  });

  test('that was paused stands at the snapshot until it is resumed', async () => {
    const snapshotId = await keep('point');
    expect(await session.stub.pause(caller)).toMatchObject({ ok: true });
    await dies(first);
    await expect.poll(async () => (await view()).state).toBe('suspended');
    expect(second.sessions.has(session.id)).toBe(false);
    expect(await session.stub.resume(caller)).toMatchObject({ ok: true, value: { state: 'running' } });
    expect(origin()).toBe(snapshotId);
  });
});

describe('a session that is to be rebuilt, whose sandbox is gone while its host lives', () => {
  test.each(['host_restarted', 'lease_lost'] as const)(
    'goes on from its last snapshot as well (%s)',
    async (reason) => {
      const snapshotId = await keep('point');
      first.session(session.id).send({ type: 'sandbox_lost', reason });
      expect(await run('next')).toMatchObject({ stdout: 'next', state_lost: true });
      const { host_id: hostId } = await view();
      const host = hostId === first.hostId ? first : second;
      expect(host.session(session.id).attach.snapshot?.snapshot_id).toBe(snapshotId);
    },
  );

  test('begins empty where the sandbox died by itself', async () => {
    await keep('point');
    first.session(session.id).send({ type: 'sandbox_lost', reason: 'crashed' });
    expect(await run('next')).toMatchObject({ stdout: 'next', state_lost: true });
    expect(first.session(session.id).attach.snapshot).toBeNull();
  });
});

describe('a session that is not to be rebuilt', () => {
  test('keeps nothing of a suspension that it has come back from', async () => {
    const other = await openSession(first);
    expect(await other.stub.suspend(caller)).toMatchObject({ ok: true });
    const suspension = first.session(other.id).suspends[0]?.snapshot_id ?? '';
    expect(await other.stub.keeps(suspension)).toMatchObject({ snapshotId: suspension });
    expect(await other.stub.resume(caller)).toMatchObject({ ok: true });
    expect(await other.stub.keeps(suspension)).toBeNull();
    await other.stub.destroy(caller);
  });
});
