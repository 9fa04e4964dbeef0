import {
  abortAllDurableObjects,
  evictDurableObject,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { assembled, EventReader, events } from '../../harness/event-reader.ts';
import { eventually } from '../../harness/eventually.ts';
import { retireFakeHost } from '../../harness/fake-host.ts';
import { allKept, holdSession } from '../../harness/held-session.ts';
import {
  call,
  caller,
  sessionObject,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession());
});
afterEach(async () => {
  vi.useRealTimers();
  await retireFakeHost(host);
});

const objectStub = () => sessionObject(session.id);

const settled = () => allKept(host, session);

async function start(command: string): Promise<{ id: string; execution: ExecutionDouble }> {
  const accepted = await session.stub.execute(call(command, { body: { detach: true } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const id = accepted.value.execution_id;
  await host.until(() => running.some((execution) => execution.id === id));
  const execution = running.find((candidate) => candidate.id === id);
  if (execution === undefined) throw new Error('not started');
  return { id, execution };
}

async function result(id: string) {
  const found = await session.stub.getExecution(caller, id);
  if (!found.ok) throw new Error(found.detail);
  return found.value;
}

const STEPS = ['after it was accepted', 'after its start', 'between its output', 'after its end'] as const;

describe('an eviction', () => {
  test.each(STEPS)('%s loses nothing and starts nothing twice', async (step) => {
    const evictAt = async (here: (typeof STEPS)[number]) => {
      if (here !== step) return;
      await settled();
      await evictDurableObject(objectStub());
    };
    const { id, execution } = await start('x');
    await evictAt('after it was accepted');
    execution.started();
    await evictAt('after its start');
    await execution.write('stdout', 'one ');
    await evictAt('between its output');
    await execution.write('stdout', 'two');
    execution.part('value', '42');
    await execution.finish();
    await settled();
    await evictAt('after its end');
    expect(await result(id)).toMatchObject({ status: 'succeeded', stdout: 'one two', value: '42' });
    expect(host.session(session.id).starts.get(id)).toBe(1);
    const reader = new EventReader(await events(session, id));
    const read = await reader.toEnd();
    expect(read.map(({ data }) => data.event)).toEqual([
      'started',
      ...read.slice(1, -1).map(() => 'stdout'),
      'end',
    ]);
    expect(assembled(read, 'stdout')).toBe('one two');
  });

  test('with calls in the queue lets them run in their order', async () => {
    const first = await start('first');
    const queued = [];
    for (const command of ['second', 'third']) {
      const accepted = await session.stub.execute(call(command, { body: { detach: true } }));
      if (!accepted.ok) throw new Error(accepted.detail);
      queued.push(accepted.value.execution_id);
    }
    await evictDurableObject(objectStub());
    first.execution.started();
    await first.execution.finish();
    for (const [index, id] of queued.entries()) {
      await host.until(() => running.length === index + 2);
      expect(running[index + 1]?.id).toBe(id);
      running[index + 1]?.started();
      await running[index + 1]?.finish();
    }
    await settled();
    for (const id of queued) expect(await result(id)).toMatchObject({ status: 'succeeded' });
  });

  test('that closes the link lets the host go on where it was (R24)', async () => {
    const { id, execution } = await start('x');
    execution.started();
    await execution.write('stdout', 'before ');
    await settled();
    await evictDurableObject(objectStub(), { webSockets: 'close' });
    const double = host.session(session.id);
    await host.until(() => !double.isLinked);
    await execution.write('stdout', 'while down ');
    await double.connect();
    await host.until(() => double.isLinked);
    await execution.write('stdout', 'after');
    await execution.finish();
    await settled();
    expect(await result(id)).toMatchObject({ status: 'succeeded', stdout: 'before while down after' });
    expect(double.starts.get(id)).toBe(1);
  });

  test('before the host heard of a call sends a fresh grant for the same execution', async () => {
    const double = host.session(session.id);
    double.drop();
    await host.until(() => !double.isLinked);
    const accepted = await session.stub.execute(call('x', { body: { detach: true } }));
    if (!accepted.ok) throw new Error(accepted.detail);
    expect(running).toHaveLength(0);
    await double.connect();
    await host.until(() => running.length === 1);
    // Said nothing yet: the edge cannot know whether the host has it.
    double.drop();
    await double.connect();
    const grants = () => host.commands.filter(({ claims }) => claims.act === 'execute');
    await host.until(() => grants().length === 2);
    expect(new Set(grants().map(({ claims }) => claims.exec))).toEqual(
      new Set([accepted.value.execution_id]),
    );
    expect(new Set(grants().map(({ claims }) => claims.jti)).size).toBe(2);
    expect(running).toHaveLength(1);
    running[0]?.started();
    await running[0]?.finish();
    await settled();
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    if (!exported.ok) throw new Error(exported.detail);
    expect(await verifyChain(exported.value.receipts, exported.value.keys, session.id)).toMatchObject({
      ok: true,
    });
    expect(await result(accepted.value.execution_id)).toMatchObject({ status: 'succeeded' });
  });

  test('by a reset fails the waiting caller, and the repeat with its key gets the one result (R24)', async () => {
    const waiting = session.stub.execute(call('k', { key: 'k' })).then(
      () => 'answered',
      () => 'reset',
    );
    await host.until(() => running.length === 1);
    running[0]?.started();
    await settled();
    await abortAllDurableObjects();
    expect(await waiting).toBe('reset');
    const double = host.session(session.id);
    await double.connect();
    await host.until(() => double.isLinked);
    const repeated = sessionStub(session.id).execute(call('k', { key: 'k' }));
    await running[0]?.write('stdout', 'done');
    await running[0]?.finish();
    expect(await repeated).toMatchObject({ ok: true, value: { status: 'succeeded', stdout: 'done' } });
    expect(running).toHaveLength(1);
  });

  test('leaves the deadline to the alarm, which ends the call once however often it rings (R59)', async () => {
    const { id, execution } = await start('x');
    execution.started();
    await settled();
    await evictDurableObject(objectStub(), { webSockets: 'close' });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 30_000 + 4_000 + 45_000 });
    await runDurableObjectAlarm(objectStub());
    await eventually(async () => expect(await result(id)).toMatchObject({ status: 'unknown' }));
    await runDurableObjectAlarm(objectStub());
    await runDurableObjectAlarm(objectStub());
    expect(await result(id)).toMatchObject({ status: 'unknown', receipt: null });
    await runInDurableObject(objectStub(), async (_object, state) => {
      expect(await state.storage.getAlarm()).not.toBeNull();
    });
  });
});
