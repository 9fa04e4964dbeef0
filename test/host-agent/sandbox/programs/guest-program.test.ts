/** A program that runs for days: whoever looked at it, waited for it or wrote to it leaves nothing behind in the agent. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { beforeEach, expect, test } from 'vitest';
import { Channel } from '../../../../host-agent/guest-link/channel.ts';
import { GuestProgram } from '../../../../host-agent/sandbox/programs/guest-program.ts';

const TIMES = 60_000;
/** Of one time what is left behind is a few hundred bytes. */
const MAX_LEFT_BYTES = 4 * 1024 * 1024;

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');

let program: GuestProgram;
let channel: Channel;
beforeEach(() => {
  channel = new Channel({ id: 1, pid: 7, send: () => undefined, standing: () => undefined });
  program = new GuestProgram({ id: 'prc_long', command: 'sleep 1000', cwd: '/' }, 1024);
  program.run(channel, () => undefined);
});

async function leftBehind(once: () => Promise<unknown>): Promise<number> {
  for (let time = 0; time < 1_000; time += 1) await once();
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let time = 0; time < TIMES; time += 1) await once();
  collect();
  return process.memoryUsage().heapUsed - before;
}

test('neither a reader of what it writes', async () => {
  const left = new AbortController();
  const pieces = program.follow(0, left.signal)[Symbol.asyncIterator]();
  const bytes = await leftBehind(async () => {
    const next = pieces.next();
    await program.take('stdout', Buffer.from('x'));
    await next;
  });
  expect(bytes).toBeLessThan(MAX_LEFT_BYTES);
  const last = pieces.next();
  left.abort();
  expect((await last).done).toBe(true);
});

test('nor who waits for its end and goes before', async () => {
  const bytes = await leftBehind(async () => {
    const over = new AbortController();
    const ends = program.endsBefore(over.signal);
    over.abort();
    expect(await ends).toBe(false);
  });
  expect(bytes).toBeLessThan(MAX_LEFT_BYTES);
  const ends = program.endsBefore(new AbortController().signal);
  channel.receive({ type: 'exit', channel: 1, code: 3, signal: 0, cpuMs: 0, maxRssBytes: 0 });
  expect(await ends).toBe(true);
});

test('nor who writes to it; what waits when it ends is not taken', async () => {
  const bytes = await leftBehind(() => program.input(Buffer.from('x'), false));
  expect(bytes).toBeLessThan(MAX_LEFT_BYTES);
  const waits = program.input(Buffer.alloc(64 * 1024), false);
  channel.receive({ type: 'exit', channel: 1, code: 3, signal: 0, cpuMs: 0, maxRssBytes: 0 });
  expect(await waits).toMatchObject({ ok: false, code: 'execution_not_running' });
});
