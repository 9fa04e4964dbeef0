import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { HOST_FRAME } from '../../../host-agent/guest-link/frames.ts';
import { lengthPrefixed } from '../../../host-agent/guest-link/length-prefixed.ts';
import { SessionShell, shellState } from '../../../host-agent/guest-link/shell.ts';
import { HandMadeGuest } from './guest-frames.ts';

const SPAWNED = { type: 0x83, payload: Buffer.from([0, 0, 0, 9]) };
const CONTROL = 0x87;
const EXIT = { type: 0x88, payload: Buffer.alloc(20) };
const GONE = 0x8d;
const STARTED = lengthPrefixed(Buffer.from([2]));
const MAKES_OR_ENDS = new Set<number>([HOST_FRAME.spawn, HOST_FRAME.fork, HOST_FRAME.release]);

let guest: HandMadeGuest;
let shell: SessionShell;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  guest = new HandMadeGuest();
  await guest.send(0x81, 0, Buffer.from([1, 0, 0, 0, 1]));
  shell = new SessionShell(guest.link, { state: shellState('/', []), home: '/' });
});

afterEach(() => {
  vi.useRealTimers();
});

/** Of the frames that were sent, those by which processes begin and end. */
async function madeOrEnded(): Promise<string[]> {
  return (await guest.takeSent())
    .filter(({ type }) => MAKES_OR_ENDS.has(type))
    .map(({ type, channel }) => {
      const name = Object.entries(HOST_FRAME).find(([, value]) => value === type)?.[0];
      return `${name} ${channel}`;
    });
}

/** Runs a command in the shell on this channel, which the guest has made. */
async function runOn(channel: number): Promise<void> {
  const begun = shell.run({ command: 'true', onOutput: () => {} });
  await guest.takeSent();
  await guest.send(CONTROL, channel, STARTED);
  const call = await begun;
  if (!call.ok) throw new Error(call.failure.message);
  await guest.send(EXIT.type, channel, EXIT.payload);
  await guest.send(GONE, channel);
  expect(await call.value.outcome).toMatchObject({ ok: true, value: { exitCode: 0 } });
}

async function makeFirst(): Promise<void> {
  const warm = shell.warm();
  expect(await madeOrEnded()).toEqual(['spawn 1']);
  await guest.send(SPAWNED.type, 1, SPAWNED.payload);
  expect(await madeOrEnded()).toEqual(['fork 2']);
  await guest.send(SPAWNED.type, 2, SPAWNED.payload);
  expect(await warm).toMatchObject({ ok: true });
}

test('the end of a call is given before the next shell is made', async () => {
  await makeFirst();
  await runOn(2);
  expect(await madeOrEnded()).toEqual([]);
  vi.advanceTimersByTime(1_000);
  expect(await madeOrEnded()).toEqual(['release 2', 'fork 3']);
});

test('a call that comes at once has its shell made at once', async () => {
  await makeFirst();
  await runOn(2);
  void shell.run({ command: 'true', onOutput: () => {} });
  expect(await madeOrEnded()).toEqual(['release 2', 'fork 3']);
});

test('what follows a call has begun when the shell is asked to settle', async () => {
  await makeFirst();
  await runOn(2);
  const settled = shell.settled();
  expect(await madeOrEnded()).toEqual(['release 2', 'fork 3']);
  await guest.send(SPAWNED.type, 3, SPAWNED.payload);
  await settled;
  expect((await shell.carry()).spare).toBe(3);
});
