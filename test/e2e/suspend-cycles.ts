/** One session that is suspended and brought back over and over while a program in it runs: nothing of it may be lost. */
import { hash } from 'node:crypto';
import { expect } from 'vitest';
import { readReceipt, verifyChain } from '../../shared/receipt-verify.ts';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import type { TestStack } from './stack.ts';
import { until } from './until.ts';

const STOP = '/workspace/stop';
const KEPT = 'kept from the beginning\n';
/** The time that it is suspended is not the program's own; the longest that there is. */
const TIMEOUT_MS = 3_600_000;
const STEPS_BETWEEN = 3;

/** Writes each number to its reader, to a file that it keeps open and to one that is removed; then looks at all that it has. */
function program(heapBytes: number): string {
  return `import os, random, time
heap = random.Random(6).randbytes(${heapBytes})
kept, gone = open('/workspace/kept-open', 'a+'), open('/workspace/removed', 'w+')
os.unlink('/workspace/removed')
n = 0
while not os.path.exists('${STOP}'):
    for file in (kept, gone):
        print(n, file=file, flush=True)
    print(n, flush=True)
    n += 1
    time.sleep(0.02)
for file in (kept, gone):
    file.seek(0)
numbers = ''.join(f'{k}\\n' for k in range(n))
(n, heap == random.Random(6).randbytes(${heapBytes}), kept.read() == numbers, gone.read() == numbers)`;
}

/** A program of the background that counts in a file; each number is there once. */
const BEAT = `nohup sh -c 'n=0; while true; do n=$((n+1)); echo $n >>/tmp/beat; sleep 0.05; done' >/dev/null 2>&1 &`;

export interface Cycles {
  cycles: number;
  heapBytes: number;
}

/** Gives how long each suspend and each way back took, in milliseconds. */
export async function suspendOverAndOver(stack: TestStack, { cycles, heapBytes }: Cycles) {
  const session = await stack.open();
  await session.sh(`printf '${KEPT}' | tee /workspace/kept >/tmp/kept; export round=0; ${BEAT}`);
  const running = await session.detach('python', { code: program(heapBytes) }, { timeoutMs: TIMEOUT_MS });
  const reading = session.events(running.execution_id).then((stream) => stream.collect());
  const suspendMs: number[] = [];
  const resumeMs: number[] = [];
  let seen = { lines: 0, beats: 0 };
  for (let cycle = 1; cycle <= cycles; cycle += 1) {
    const context = `cycle ${cycle}`;
    seen = await goneOn(session, seen, context);
    const beganMs = performance.now();
    expect((await act(session, 'suspend')).state, context).toBe('suspended');
    const suspendedMs = performance.now();
    // By turns it is brought back by word, and by the next call.
    if (cycle % 2 === 0) expect((await act(session, 'resume')).state, context).toBe('running');
    const looked = await session.sh(`export round=$((round+1)); echo $round; cat /workspace/kept /tmp/kept`);
    resumeMs.push(performance.now() - suspendedMs);
    suspendMs.push(suspendedMs - beganMs);
    expect(looked, context).toMatchObject({
      status: 'succeeded',
      state_lost: false,
      stdout: `${cycle}\n${KEPT}${KEPT}`,
    });
    if (cycle % 20 === 0) console.log(`${cycle} of ${cycles} checkpoints and restores, ${seen.lines} lines`);
  }
  await goneOn(session, seen, 'after the last cycle');
  await session.sh(`touch ${STOP}`);
  const { stdout, end } = await reading;
  const count = stdout.split('\n').length - 1;
  expect(stdout).toBe(Array.from({ length: count }, (_, n) => `${n}\n`).join(''));
  expect(end, JSON.stringify(end?.error)).toMatchObject({ status: 'succeeded', state_lost: false });
  expect(end?.value).toBe(`(${count}, True, True, True)`);
  const beats = (await session.sh('cat /tmp/beat')).stdout;
  expect(beats).toBe(Array.from({ length: beats.split('\n').length - 1 }, (_, n) => `${n + 1}\n`).join(''));
  const read = readReceipt(await session.receipt(running.execution_id));
  if (!read.ok) throw new Error(read.detail);
  expect(read.value.receipt.stdout).toMatchObject({ sha256: hash('sha256', stdout), bytes: stdout.length });
  const exported = await session.receipts();
  expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
  expect((await session.describe()).generation).toBe(cycles);
  await session.delete();
  return { suspendMs, resumeMs };
}

/** Waits until both programs have written some more since they were last looked at. */
function goneOn(
  session: SessionClient,
  before: { lines: number; beats: number },
  context: string,
): Promise<{ lines: number; beats: number }> {
  return until(`${context}: both programs go on`, PATIENCE_MS, async () => {
    const { stdout } = await session.sh('wc -l </workspace/kept-open; wc -l </tmp/beat');
    const [lines = 0, beats = 0] = stdout.split('\n').map(Number);
    expect(lines, `${context}: lines are gone`).toBeGreaterThanOrEqual(before.lines);
    const isOn = lines >= before.lines + STEPS_BETWEEN && beats >= before.beats + STEPS_BETWEEN;
    return isOn ? { lines, beats } : undefined;
  });
}

async function act(session: SessionClient, name: 'suspend' | 'resume') {
  return (await session.api.json(SessionSchema, 'POST', `${session.path}/${name}`)).value;
}
