/** Calls of different tools in one session. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { REPLAY_RING_BYTES, REPLAY_WINDOW_BYTES } from '../../../../shared/limits.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import { type HostDouble, startAmong } from '../../../fixtures/host-double/host-double.ts';
import { executeStream } from '../../harness/event-reader.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

async function open(options: { hasLanes?: boolean } = {}): Promise<void> {
  running = [];
  host = await connectFakeHost({
    ...options,
    script: startAmong(running),
  });
  session = await openSession(host);
}
afterEach(() => host.close());

function python(code: string, more: Record<string, unknown> = {}) {
  return call(code, { body: { tool_name: 'python', arguments: { code }, ...more } });
}

async function nth(index: number): Promise<ExecutionDouble> {
  await host.until(() => running.length > index);
  const execution = running[index];
  if (execution === undefined) throw new Error('nothing runs');
  return execution;
}

describe('calls of different tools', () => {
  beforeEach(() => open());

  test('run at the same time, each tool in the order of its calls', async () => {
    const answers = [
      session.stub.execute(python('a')),
      session.stub.execute(call('b')),
      session.stub.execute(python('c')),
      session.stub.execute(call('d')),
    ];
    await nth(1);
    expect(running.map(({ arguments: given }) => given.code ?? given.command)).toEqual(['a', 'b']);
    await (await nth(1)).finish();
    expect((await nth(2)).arguments.command).toBe('d');
    await (await nth(0)).finish();
    expect((await nth(3)).arguments.code).toBe('c');
    for (const index of [3, 2]) await (await nth(index)).finish();
    const ended = await Promise.all(answers);
    expect(ended.map((answer) => answer.ok && answer.value.status)).toEqual(answers.map(() => 'succeeded'));
    const seqs = running.map(({ claims }) => claims.seq);
    expect(seqs).toEqual(seqs.toSorted((left, right) => left - right));
  });

  test('have receipts in one chain, in the order in which they end', async () => {
    const slow = session.stub.execute(python('slow'));
    await nth(0);
    const quick = session.stub.execute(call('quick'));
    await (await nth(1)).finish();
    await quick;
    await (await nth(0)).finish();
    await slow;
    const chain = await session.stub.receipts(caller, { after: 0, edge_after: 0, limit: 10 });
    const tools = chain.ok ? chain.value.receipts.map(({ payload }) => JSON.parse(atob(payload)).tool) : [];
    expect(tools).toEqual(['shell', 'python']);
  });

  test('are all stopped by an interrupt that names none', async () => {
    const answers = [session.stub.execute(python('a')), session.stub.execute(call('b'))];
    const both = [await nth(0), await nth(1)];
    expect(await session.stub.interrupt(caller, null)).toMatchObject({
      value: { execution_id: both[0]?.id },
    });
    for (const execution of both) {
      await execution.interrupted;
      await execution.finish({ status: 'interrupted', exit_code: null, signal: 'SIGINT' });
    }
    const ended = await Promise.all(answers);
    expect(ended.map((answer) => answer.ok && answer.value.status)).toEqual(['interrupted', 'interrupted']);
  });

  test('do not wait for the slow reader of another', async () => {
    const reader = await executeStream(session, python('print'));
    const printing = await nth(0);
    const written = printing.write(
      'stdout',
      new Uint8Array(REPLAY_WINDOW_BYTES + 3 * REPLAY_RING_BYTES).fill(97),
    );
    const link = host.session(session.id);
    const isHeld = () => link.heard.some((frame) => frame.type === 'ack' && frame.beyond !== undefined);
    const shell = session.stub.execute(call('ls'));
    const other = await nth(1);
    await other.write('stdout', 'here');
    await other.finish();
    expect(await shell).toMatchObject({ value: { status: 'succeeded', stdout: 'here' } });
    const more = session.stub.execute(call('ls'));
    await (await nth(2)).write('stdout', 'again');
    await host.until(isHeld);
    await (await nth(2)).finish();
    expect(await more).toMatchObject({ value: { stdout: 'again' } });
    const ended = written.then(() => printing.finish());
    await reader.toEnd();
    await ended;
  });
});

test('a host without lanes is given one call after the other', async () => {
  await open({ hasLanes: false });
  const first = session.stub.execute(python('a'));
  const second = session.stub.execute(call('b'));
  const python1 = await nth(0);
  const listed = await session.stub.listExecutions(caller, { limit: 2 });
  expect(listed.ok && listed.value.executions.map(({ status }) => status)).toEqual([
    'queued',
    expect.stringMatching(/granted|running/),
  ]);
  await python1.finish();
  await (await nth(1)).finish();
  await Promise.all([first, second]);
  expect(host.commands.map(({ claims }) => claims.tool).filter((tool) => tool !== null)).toEqual([
    'python',
    'shell',
  ]);
});
