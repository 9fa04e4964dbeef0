import { abortAllDurableObjects } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { DOUBLE_TRAITS } from '../../../fixtures/host-double/snapshot-double.ts';
import { tokenOf } from '../../fixture-issuer.ts';
import { dies } from '../../harness/dying-host.ts';
import { connectFakeHost, retireFakeHost } from '../../harness/fake-host.ts';
import { SessionEventReader } from '../../harness/session-events.ts';
import { call, caller, openSession, sessionStub, type TestSession } from '../../harness/sessions.ts';

const RESCUE = { rescue: 'workspace' } as const;

let first: HostDouble;
let second: HostDouble;
let session: TestSession;

/** The second host cannot go on from checkpoints of the first, which stores workspaces. */
beforeEach(async () => {
  first = await connectFakeHost();
  first.storesWorkspaces = true;
  second = await connectFakeHost();
  await becomes({ ...DOUBLE_TRAITS, runsc_version: 'another' });
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await session.stub.destroy(caller);
  for (const host of [first, second]) await retireFakeHost(host).catch(() => undefined);
  for (const host of [first, second]) await dies(host);
});

async function becomes(traits: HostDouble['traits']): Promise<void> {
  second.traits = traits;
  second.close();
  await second.connect();
}

async function view() {
  const described = await session.stub.describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
}

async function open(body: object = {}): Promise<void> {
  session = await openSession(first, body);
}

async function suspend(): Promise<string> {
  expect(await session.stub.suspend(caller)).toMatchObject({ ok: true });
  return first.session(session.id).suspends.at(-1)?.snapshot_id ?? '';
}

const run = (command: string, body: Record<string, unknown> = {}) =>
  session.stub.execute(call(command, { body }));
const rescued = () => second.session(session.id).attach.workspace?.snapshot_id;
const kept = async (snapshotId: string): Promise<string[]> =>
  (await env.SNAPSHOTS.list({ prefix: `${caller.tenant}/${snapshotId}/` })).objects.map(({ key }) => key);

describe('a suspended session whose snapshot no host that lives can restore', () => {
  test('says that its workspace can be had, and goes on with that where it is asked for', async () => {
    await open();
    first.script = (execution) => execution.started();
    const begun = session.stub.execute(call('begun', { body: { detach: true } }));
    await first.until(() => first.session(session.id).starts.size === 1);
    const snapshotId = await suspend();
    const { epoch, generation } = await view();
    await dies(first);
    const refused = await session.stub.resume(caller);
    expect(refused).toMatchObject({ ok: false, code: 'no_host_available' });
    expect(refused.ok ? '' : refused.detail).toContain('"rescue": "workspace"');
    expect(await session.stub.resume(caller, RESCUE)).toMatchObject({
      ok: true,
      value: { state: 'running', host_id: second.hostId, generation: generation + 1 },
    });
    expect((await view()).epoch).toBeGreaterThan(epoch);
    expect(rescued()).toBe(snapshotId);
    expect(second.session(session.id).attach.snapshot).toBeNull();
    const accepted = await begun;
    const id = accepted.ok ? accepted.value.execution_id : '';
    expect(await session.stub.wait(caller, id)).toMatchObject({
      value: { status: 'unknown', reason: 'rescued' },
    });
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: true } });
    expect(await run('after')).toMatchObject({ value: { stdout: 'after', state_lost: false } });
    const token = await tokenOf({ claims: { tenant: caller.tenant, sub: caller.subject } });
    const reader = await SessionEventReader.open(session.id, token);
    const { event } = await reader.until('session.rescued');
    await reader.cancel();
    expect(event).toMatchObject({
      data: { host_id: second.hostId, snapshot_id: snapshotId, image: 'python' },
    });
    await expect.poll(() => kept(snapshotId)).toEqual([]);
  });

  test('is restored all the same where a host can do that by then', async () => {
    await open();
    const snapshotId = await suspend();
    expect(await session.stub.resume(caller, RESCUE)).toMatchObject({
      ok: true,
      value: { state: 'running', host_id: first.hostId },
    });
    expect(first.session(session.id).attach).toMatchObject({ snapshot: { snapshot_id: snapshotId } });
    expect(await run('next')).toMatchObject({ value: { state_lost: false } });
  });

  test('is not given up where the rescue fails: it can be restored later', async () => {
    await open();
    const snapshotId = await suspend();
    first.close();
    await dies(first);
    second.refuseAttach = 'snapshot_damaged';
    expect(await session.stub.resume(caller, RESCUE)).toMatchObject({ ok: false, code: 'snapshot_damaged' });
    second.refuseAttach = undefined;
    expect((await view()).state).toBe('suspended');
    expect((await kept(snapshotId)).length).toBeGreaterThan(1);
    await becomes(DOUBLE_TRAITS);
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: false } });
    expect(second.session(session.id).attach).toMatchObject({ snapshot: { snapshot_id: snapshotId } });
  });

  test('is not given up where its object was lost in the middle of the rescue', async () => {
    await open();
    const snapshotId = await suspend();
    await dies(first);
    second.losesAttaches = 100;
    const attempt = session.stub.resume(caller, RESCUE).catch(() => 'lost');
    await second.until(() => second.commands.some(({ claims }) => claims.act === 'attach'));
    await abortAllDurableObjects();
    expect(await attempt).toBe('lost');
    session = { ...session, stub: sessionStub(session.id) };
    expect((await view()).state).toBe('suspended');
    second.losesAttaches = 0;
    await becomes(DOUBLE_TRAITS);
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: false } });
    expect(second.session(session.id).attach).toMatchObject({ snapshot: { snapshot_id: snapshotId } });
  });

  test('is rescued where somebody else tries to have it whole at the same time', async () => {
    await open();
    const snapshotId = await suspend();
    await dies(first);
    // Manifests are read to say that there is a workspace: at the end of an attempt, and before the rescue.
    let begun = 0;
    let released = 1;
    const read = env.SNAPSHOTS.get.bind(env.SNAPSHOTS);
    vi.spyOn(env.SNAPSHOTS, 'get').mockImplementation(async (key: string) => {
      begun += 1;
      for (const own = begun; own > released; ) await scheduler.wait(5);
      return read(key);
    });
    const asked = session.stub.resume(caller, RESCUE);
    await expect.poll(() => begun).toBe(2);
    const whole = session.stub.resume(caller);
    await expect.poll(() => begun).toBe(3);
    released = 2;
    await expect.poll(async () => (await view()).state).toBe('suspended');
    released = Number.POSITIVE_INFINITY;
    expect(await whole).toMatchObject({ ok: false, code: 'no_host_available' });
    expect(await asked).toMatchObject({ ok: true, value: { state: 'running', host_id: second.hostId } });
    expect(rescued()).toBe(snapshotId);
  });

  test('stays where it is where the snapshot has no workspace of its own', async () => {
    first.storesWorkspaces = false;
    await open();
    await suspend();
    await dies(first);
    const refused = await session.stub.resume(caller, RESCUE);
    expect(refused).toMatchObject({ ok: false, code: 'no_host_available' });
    expect(refused.ok ? '' : refused.detail).toContain('no workspace');
    expect((await view()).state).toBe('suspended');
  });

  test('goes on in another image where that is named', async () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    await open();
    await suspend();
    await dies(first);
    second.images.splice(0, 1, { name: 'newer', digest });
    await becomes(second.traits);
    const nowhere = await session.stub.resume(caller, { ...RESCUE, rescue_image: 'unheard-of' });
    expect(nowhere).toMatchObject({ ok: false, code: 'image_not_found' });
    expect(await session.stub.resume(caller, { ...RESCUE, rescue_image: 'newer' })).toMatchObject({
      ok: true,
      value: { image: 'newer', image_digest: digest, host_id: second.hostId },
    });
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: true } });
  });

  test('goes back to its snapshots in their own image, whatever it was rescued in', async () => {
    await open();
    const { image_digest: own } = await view();
    const made = await session.stub.snapshot(caller, { kind: 'named', name: 'before' });
    const snapshotId = made.ok ? made.value.snapshotId : '';
    await suspend();
    await dies(first);
    second.images.push({ name: 'newer', digest: `sha256:${'a'.repeat(64)}` });
    await becomes(second.traits);
    expect(await session.stub.resume(caller, { ...RESCUE, rescue_image: 'newer' })).toMatchObject({
      ok: true,
      value: { image: 'newer' },
    });
    await becomes(DOUBLE_TRAITS);
    expect(await session.stub.rollBack(caller, { snapshot_id: snapshotId })).toMatchObject({ ok: true });
    expect(await run('next')).toMatchObject({ value: { stdout: 'next' } });
    expect(second.session(session.id).attach).toMatchObject({ snapshot: { snapshot_id: snapshotId } });
    expect(await view()).toMatchObject({ image: own, image_digest: own });
  });

  test('is not given up for another image while a host that fits is only away', async () => {
    await open();
    const snapshotId = await suspend();
    first.close();
    await expect.poll(async () => (await env.HOST.getByName(first.hostId).status()).connected).toBe(false);
    expect(await session.stub.resume(caller, { ...RESCUE, rescue_image: 'python' })).toMatchObject({
      ok: false,
      code: 'no_host_available',
    });
    expect((await view()).state).toBe('suspended');
    await first.connect();
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: false } });
    expect(first.session(session.id).attach).toMatchObject({ snapshot: { snapshot_id: snapshotId } });
  });

  test("is nobody else's to rescue", async () => {
    await open();
    await suspend();
    for (const stranger of [
      { ...caller, subject: 'mallory' },
      { ...caller, tenant: 'globex' },
    ]) {
      expect(await session.stub.resume(stranger, RESCUE)).toMatchObject({ ok: false, code: 'not_found' });
    }
  });
});

describe('what a host is asked to store', () => {
  test('has the workspace where it is kept, and none where it is gone back to at once', async () => {
    await open({ rollback: 'on_failure' });
    await run('careful');
    await session.stub.snapshot(caller, { kind: 'named', name: 'kept' });
    await session.stub.fork(caller);
    await suspend();
    const asked = first.session(session.id).suspends.map(({ workspace }) => workspace === true);
    expect(asked).toEqual([false, true, false, true]);
  });
});

describe('a session that is to be rebuilt, of which no host could restore a snapshot', () => {
  test('goes on with the workspace of its last one before it begins empty', async () => {
    await open({ on_host_loss: 'rebuild' });
    const made = await session.stub.snapshot(caller, { kind: 'named', name: 'kept' });
    const snapshotId = made.ok ? made.value.snapshotId : '';
    await dies(first);
    expect(await run('next')).toMatchObject({ value: { stdout: 'next', state_lost: true } });
    expect(rescued()).toBe(snapshotId);
    expect(await kept(snapshotId)).not.toEqual([]);
  });
});
