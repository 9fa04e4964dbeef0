/** Forks at a pending call, moves of a program that waits, and calls that are taken back, on real sandboxes. */
import { hash } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { readReceipt, verifyChain } from '../../shared/receipt-verify.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { answer, fork, post, programIn, registerAsk } from './forking.ts';
import { migrate } from './moving.ts';
import { useSecondHost } from './second-host.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const TEST_TIMEOUT_MS = 300_000;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0', SANDGATE_WAITING_FREEZE_MS: '300' }));
const second = useSecondHost(stack);

beforeAll(() => registerAsk(stack().api));

async function expectVerified(session: SessionClient, receipts: number): Promise<void> {
  const exported = await session.receipts();
  expect(exported.receipts).toHaveLength(receipts);
  expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
}

const PYTHON = `
import json, os, random, tempfile, threading, uuid
random.random(), os.urandom(8), uuid.uuid4(), tempfile.mktemp()
held = bytearray(b"x" * 20_000_000)
open("/workspace/mark", "w").write("before")
lock = threading.Lock(); lock.acquire()
steps = []
def tick():
    lock.acquire()
    steps.append("freed")
thread = threading.Thread(target=tick); thread.start()
numbers = iter(range(100)); next(numbers)
print("before")
way = tools.people.ask(n=1)
print("took", way)
open("/workspace/mark", "a").write(f" {way}")
lock.release(); thread.join()
further = tools.people.ask(n=2)
drawn = {"random": str(random.random()), "urandom": os.urandom(8).hex()}
drawn |= {"uuid4": uuid.uuid4().hex, "tempfile": tempfile.mktemp()}
(way, further, next(numbers), steps, len(held), open("/workspace/mark").read())`;

const DRAWN_KINDS = ['random', 'urandom', 'uuid4', 'tempfile'] as const;
const DrawnSchema = z.record(z.enum(DRAWN_KINDS), z.string());

const TWICE = `
steps = 0
way = tools.people.ask(n=1)
steps += 1
further = tools.people.ask(n=2)
(way, further, steps)`;

describe('a fork at a pending call', () => {
  test('R44: goes on in each session with the answer that it is given there, and draws random values of its own', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const parent = await stack().open();
    const waiting = await post(parent, '', { language: 'python', code: PYTHON });
    expect(waiting).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 1 } }] });
    const children = await fork(parent, 3);
    const drawn: Record<string, string>[] = [];
    const machines = [(await parent.sh('cat /etc/machine-id')).stdout];
    for (const [n, child] of children.entries()) {
      const inherited = await programIn(child);
      expect(inherited).toMatchObject({
        status: 'waiting',
        parent_program_id: waiting.program_id,
        pending: [{ arguments: { n: 1 } }],
      });
      const further = await answer(child, inherited, `way ${n}`);
      expect(further).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 2 } }] });
      const ended = await answer(child, further, n);
      expect(ended.execution.error).toBeNull();
      expect(ended).toMatchObject({
        status: 'succeeded',
        used: { calls: 2 },
        execution: {
          stdout: `took way ${n}\n`,
          value: `('way ${n}', ${n}, 1, ['freed'], 20000000, 'before way ${n}')`,
        },
      });
      drawn.push(DrawnSchema.parse(JSON.parse((await child.py('print(json.dumps(drawn))')).stdout)));
      machines.push((await child.sh('cat /etc/machine-id')).stdout);
      await expectVerified(child, 3);
    }
    for (const machine of machines) expect(machine).toMatch(/^[0-9a-f]{32}\n$/);
    expect(new Set(machines).size).toBe(1 + children.length);
    for (const kind of DRAWN_KINDS) {
      expect(new Set(drawn.map((values) => values[kind])).size, kind).toBe(children.length);
    }
    const still = await answer(parent, waiting, 'home');
    const home = await answer(parent, still, -1);
    expect(home.execution).toMatchObject({
      stdout: 'before\ntook home\n',
      value: "('home', -1, 1, ['freed'], 20000000, 'before home')",
    });
    await expectVerified(parent, 2);
    await Promise.all([parent, ...children].map((one) => one.delete()));
  });

  test('goes on in a fork of a fork, beside the fork and the parent', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const parent = await stack().open();
    const waiting = await post(parent, '', { language: 'python', code: TWICE });
    expect(waiting).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 1 } }] });
    const [child] = await fork(parent, 1);
    if (child === undefined) throw new Error('there is no fork');
    const further = await answer(child, await programIn(child), 'left');
    expect(further).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 2 } }] });
    const [grandchild] = await fork(child, 1);
    if (grandchild === undefined) throw new Error('there is no fork of the fork');
    const ended = await answer(grandchild, await programIn(grandchild), 'late');
    expect(ended.execution).toMatchObject({
      error: null,
      value: "('left', 'late', 1)",
    });
    expect((await answer(child, further, 'soon')).execution.value).toBe("('left', 'soon', 1)");
    const home = await answer(parent, await answer(parent, waiting, 'right'), 'home');
    expect(home.execution.value).toBe("('right', 'home', 1)");
    await Promise.all([parent, child, grandchild].map((one) => one.delete()));
  });
});

describe('a program that waits', () => {
  test('moves to another host and back, takes its answers there, and its reader sees one stream', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = await stack().open();
    const waiting = await post(session, '', { language: 'python', code: PYTHON });
    const reading = (await session.events(waiting.program_id)).collect();
    const first = (await session.describe()).host_id;
    const other = await migrate(session);
    expect(new Set([first, other])).toEqual(new Set([stack().stack.hostId, second().hostId]));
    const further = await answer(session, waiting, 'there');
    expect(further).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 2 } }] });
    expect(await migrate(session)).toBe(first);
    const ended = await answer(session, further, 'back');
    expect(ended.execution).toMatchObject({
      error: null,
      stdout: 'before\ntook there\n',
      value: "('there', 'back', 1, ['freed'], 20000000, 'before there')",
    });
    const read = await reading;
    expect(read).toMatchObject({ stdout: 'before\ntook there\n', gaps: [], end: { status: 'succeeded' } });
    const receipt = readReceipt(await session.receipt(waiting.program_id));
    if (!receipt.ok) throw new Error(receipt.detail);
    const { former_hosts: former = [], host_id: last, stdout } = receipt.value.receipt;
    expect([...former, last]).toEqual([first, other, first]);
    expect(stdout.sha256).toBe(hash('sha256', read.stdoutBytes));
    await expectVerified(session, 1);
    await session.delete();
  });
});

describe('a session that is taken back where a call fails', () => {
  test('has neither files, nor variables, nor programs of the call that failed', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = await stack().open({ rollback: 'on_failure' });
    await session.py("kept = [1]\nopen('/workspace/file', 'w').write('before')");
    const failed = await session.py(`import os, subprocess
kept.append(2)
open('/workspace/file', 'w').write('spoilt')
open('/tmp/more', 'w').write('x')
subprocess.Popen(['sleep', '1000'])
raise ValueError('no')`);
    expect(failed).toMatchObject({ status: 'failed', rolled_back: true, error: { name: 'ValueError' } });
    const looked = await session.py(
      "(kept, open('/workspace/file').read(), __import__('os').path.exists('/tmp/more'))",
    );
    expect(looked).toMatchObject({ status: 'succeeded', state_lost: false, value: "([1], 'before', False)" });
    expect((await session.sh('pgrep sleep | wc -l')).stdout.trim()).toBe('0');
    const killed = await session.py(
      'kept.append(3)\nhog = bytearray(2 * 1024 ** 3)\nfor n in range(0, len(hog), 4096): hog[n] = 1',
    );
    expect(killed.status).not.toBe('succeeded');
    expect(killed.rolled_back).toBe(true);
    expect((await session.py('kept')).value).toBe('[1]');
    const slow = await session.execute(
      'shell',
      { command: 'echo x >/workspace/file; sleep 60' },
      { timeoutMs: 500 },
    );
    expect(slow).toMatchObject({ status: 'timeout', rolled_back: true });
    expect((await session.sh('cat /workspace/file')).stdout).toBe('before');
    const good = await session.py('kept.append(4)\nkept');
    expect(good).toMatchObject({ status: 'succeeded', value: '[1, 4]' });
    const back = await session.api.request('POST', `${session.path}/rollback`, {
      body: { execution_id: good.execution_id },
    });
    expect(back.status).toBe(200);
    expect((await session.py('kept')).value).toBe('[1]');
    const generation = await until('it is restored', PATIENCE_MS, async () =>
      z.int().parse((await session.describe()).generation),
    );
    expect(generation).toBe(4);
    await expectVerified(session, (await session.executions()).executions.length);
    await session.delete();
  });
});
