import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MAX_QUEUED_EXECUTIONS } from '../../../../shared/limits.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { holdSession } from '../../harness/held-session.ts';
import { call, caller, type TestSession, WHOLE_CHAIN } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession((execution) => execution.started()));
});
afterEach(() => host.close());

async function finish(index: number): Promise<void> {
  await host.until(() => running.length > index);
  const execution = running[index];
  await execution?.write('stdout', String(execution.arguments.command));
  await execution?.finish();
}

describe('the queue of a session', () => {
  test('runs one call at a time in the order of their acceptance (R33)', async () => {
    const answers = ['a', 'b', 'c'].map((command) => session.stub.execute(call(command)));
    await host.until(() => running.length === 1);
    const listed = await session.stub.listExecutions(caller, { limit: 10 });
    expect(listed.ok && listed.value.executions.map(({ status }) => status)).toEqual([
      'queued',
      'queued',
      expect.stringMatching(/granted|running/),
    ]);
    for (const index of [0, 1, 2]) await finish(index);
    const results = await Promise.all(answers);
    expect(results.map((result) => result.ok && result.value.stdout)).toEqual(['a', 'b', 'c']);
    expect(running.map((execution) => execution.arguments.command)).toEqual(['a', 'b', 'c']);
    const seqs = running.map(({ claims }) => claims.seq);
    expect(seqs).toEqual(seqs.toSorted((left, right) => left - right));
  });

  test('refuses the call that is one too many, and takes it when there is room', async () => {
    const detached = { body: { detach: true } };
    for (let count = 0; count <= MAX_QUEUED_EXECUTIONS; count += 1) {
      expect(await session.stub.execute(call(`c${count}`, detached))).toMatchObject({ ok: true });
    }
    expect(await session.stub.execute(call('one too many', detached))).toMatchObject({
      ok: false,
      code: 'queue_full',
      retry_after_s: 1,
    });
    await finish(0);
    await host.until(() => running.length === 2);
    expect(await session.stub.execute(call('now', detached))).toMatchObject({ ok: true });
  });

  test('cancels a call that is interrupted while it waits, and never sends it', async () => {
    const first = session.stub.execute(call('first'));
    await host.until(() => running.length === 1);
    const waiting = await session.stub.execute(call('waiting', { body: { detach: true } }));
    if (!waiting.ok) throw new Error(waiting.detail);
    const { execution_id } = waiting.value;
    expect(await session.stub.interrupt(caller, execution_id)).toMatchObject({ ok: true });
    expect(await session.stub.getExecution(caller, execution_id)).toMatchObject({
      value: { status: 'cancelled', started_at: null, receipt: null },
    });
    await finish(0);
    await first;
    expect(await session.stub.interrupt(caller, execution_id)).toMatchObject({
      code: 'execution_not_running',
    });
    expect(running).toHaveLength(1);
  });

  test('gives stdin and interrupts to what runs, and to nothing else', async () => {
    const answer = session.stub.execute(call('cat', { body: { stdin: true } }));
    await host.until(() => running.length === 1);
    const execution = running[0];
    if (execution === undefined) throw new Error('nothing runs');
    expect(
      await session.stub.stdin(caller, execution.id, new TextEncoder().encode('in'), true),
    ).toMatchObject({
      ok: true,
    });
    await execution.stdinClosed;
    expect(new TextDecoder().decode(execution.stdin[0])).toBe('in');
    expect(await session.stub.interrupt(caller, null)).toMatchObject({
      value: { execution_id: execution.id },
    });
    await execution.interrupted;
    await execution.finish({ status: 'interrupted', exit_code: null, signal: 'SIGINT' });
    expect(await answer).toMatchObject({ value: { status: 'interrupted', signal: 'SIGINT' } });
    expect(await session.stub.interrupt(caller, null)).toMatchObject({ value: { execution_id: null } });
    expect(await session.stub.stdin(caller, execution.id, new Uint8Array(1), false)).toMatchObject({
      code: 'execution_not_running',
    });
  });

  test('ends a call as refused when the host refuses its grant', async () => {
    host.script = (execution) => execution.refuse('tool_refused');
    expect(await session.stub.execute(call('x'))).toMatchObject({
      value: { status: 'refused', reason: 'tool_refused', receipt: null },
    });
  });
});

describe('an idempotency key', () => {
  test('joins the same call while it runs and replays it after, with one start (R37)', async () => {
    const [first, second] = [
      session.stub.execute(call('k', { key: 'k1' })),
      session.stub.execute(call('k', { key: 'k1' })),
    ];
    await finish(0);
    const third = await session.stub.execute(call('k', { key: 'k1' }));
    expect(await first).toMatchObject({ ok: true, value: { stdout: 'k' } });
    expect([await second, third]).toEqual([await first, await first]);
    expect(running).toHaveLength(1);
  });

  test('of another request is a conflict, and nothing runs', async () => {
    const first = session.stub.execute(call('one', { key: 'k2' }));
    await finish(0);
    await first;
    expect(await session.stub.execute(call('two', { key: 'k2' }))).toMatchObject({
      code: 'idempotency_conflict',
    });
    expect(running).toHaveLength(1);
  });

  test('replays its execution when the session is gone, and an unknown one finds nothing', async () => {
    const first = session.stub.execute(call('one', { key: 'k3' }));
    await finish(0);
    const result = await first;
    expect(await session.stub.destroy(caller)).toMatchObject({ ok: true });
    expect(await session.stub.execute(call('one', { key: 'k3' }))).toEqual(result);
    expect(await session.stub.execute(call('one', { key: 'k4' }))).toMatchObject({ code: 'not_found' });
  });
});

describe('a session of somebody else', () => {
  const mallory = { tenant: 'acme', subject: 'mallory' };
  test('answers like a missing one on every call', async () => {
    const mine = await session.stub.execute(call('mine', { body: { detach: true } }));
    if (!mine.ok) throw new Error(mine.detail);
    const id = mine.value.execution_id;
    const { stub } = session;
    const answers = [
      await stub.describe(mallory),
      await stub.destroy(mallory),
      await stub.execute({ ...call('x'), caller: mallory }),
      await stub.listExecutions(mallory, { limit: 1 }),
      await stub.getExecution(mallory, id),
      await stub.receipt(mallory, id),
      await stub.receipts(mallory, WHOLE_CHAIN),
      await stub.toolOf(mallory, id),
      await stub.stdin(mallory, id, new Uint8Array(1), false),
      await stub.interrupt(mallory, null),
    ];
    expect(answers.map((answer) => !answer.ok && answer.code)).toEqual(answers.map(() => 'not_found'));
    expect(running).toHaveLength(1);
  });
});
