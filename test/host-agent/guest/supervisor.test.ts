import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import {
  encodeFrame,
  FrameDecoder,
  type GuestFrame,
  HOST_FRAME,
} from '../../../host-agent/guest-link/frames.ts';
import { compileGuest } from './compiled-guest.ts';
import { eventually, must } from './guest-under-test.ts';

const MIB = 1024 * 1024;
let folder: string;
let child: ChildProcessWithoutNullStreams;
let frames: GuestFrame[];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandgate-supervisor-'));
  compileGuest(folder);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(async () => {
  child.stdin.destroy();
  child.stdout.resume();
  await eventually('the supervisor ends', () => child.exitCode !== null || child.signalCode !== null);
});

function start(): void {
  child = spawn(join(folder, 'supervisor'), { stdio: 'pipe' });
  frames = [];
  child.stdin.on('error', () => undefined);
}

function listen(): void {
  const decoder = new FrameDecoder();
  child.stdout.on('data', (bytes: Buffer) => frames.push(...must(decoder.push(bytes))));
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value, 0);
  return bytes;
}

function spawnFrame(channel: number, command: string, credit: number): Buffer {
  const argv = ['bash', '-c', command];
  const environment = ['PATH=/usr/bin:/bin'];
  const text = (strings: string[]) => Buffer.from(strings.map((string) => `${string}\0`).join(''));
  const payload = [
    u32(credit),
    u32(credit),
    u32(credit),
    text(['/']),
    u32(3),
    text(argv),
    u32(1),
    text(environment),
  ];
  return encodeFrame(HOST_FRAME.spawn, channel, Buffer.concat([Buffer.from([0]), ...payload]));
}

/** Command lines of all processes of this machine. */
function commandLines(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
      } catch {
        return '';
      }
    });
}

const processesWith = (text: string) => commandLines().filter((line) => line.includes(text)).length;

it('says what it cannot understand, kills everything and ends', async () => {
  start();
  listen();
  child.stdin.write(spawnFrame(1, 'setsid sleep 31337001 & exec sleep 31337001', 0));
  await eventually('both run', () => processesWith('sleep 31337001') >= 2);
  child.stdin.write(Buffer.from('ffffffff00', 'hex'));
  await eventually('it ends', () => child.exitCode !== null);
  expect(child.exitCode).toBe(2);
  expect(frames.at(-1)).toMatchObject({ type: 'error', channel: 0 });
  expect(processesWith('sleep 31337001')).toBe(0);
});

it('kills everything and ends when the host is gone', async () => {
  start();
  child.stdin.write(
    spawnFrame(1, '(setsid sleep 31337002 &); trap "" TERM HUP; while true; do sleep 31337002; done', 0),
  );
  await eventually('both run', () => processesWith('sleep 31337002') >= 2);
  child.stdin.destroy();
  child.stdout.destroy();
  await eventually('it ends', () => child.exitCode !== null);
  expect(processesWith('31337002')).toBe(0);
});

it.each([
  ['an unknown type', encodeFrame(0x7f as never, 5)],
  ['a signal that does not exist', encodeFrame(HOST_FRAME.signal, 5, Buffer.from([99, 0]))],
  ['a signal of the wrong size', encodeFrame(HOST_FRAME.signal, 5, Buffer.from([9]))],
  ['credit for no stream', encodeFrame(HOST_FRAME.credit, 5, Buffer.from([9, 0, 0, 0, 1]))],
  ['more input than it has credit', encodeFrame(HOST_FRAME.stdin, 5, Buffer.alloc(65 * 1024))],
])('refuses %s and goes on', async (_, frame) => {
  start();
  listen();
  child.stdin.write(Buffer.concat([spawnFrame(5, 'sleep 0.01; echo on', 1000), frame]));
  await eventually('the program ends', () => frames.some(({ type }) => type === 'gone'));
  expect(frames.filter(({ type }) => type === 'error')).toMatchObject([{ channel: 5 }]);
  expect(frames).toContainEqual(expect.objectContaining({ type: 'stdout', bytes: Buffer.from('on\n') }));
});

it.each([
  ['no arguments', (whole: Buffer) => whole.subarray(0, 9 + 13 + 2)],
  ['a string without an end', (whole: Buffer) => whole.subarray(0, -1)],
  ['nothing', (whole: Buffer) => whole.subarray(0, 9)],
])('refuses to start a program from a frame with %s', async (_, cut) => {
  start();
  listen();
  const broken = Buffer.from(cut(spawnFrame(1, 'true', 0)));
  broken.writeUInt32BE(broken.length - 4, 0);
  child.stdin.write(broken);
  await eventually('it answers', () => frames.length === 2);
  expect(frames[1]).toMatchObject({ type: 'spawn_failed', channel: 1, errno: 22 });
});

it.each([
  ['a channel that is not there', u32(4711), 32],
  ['a program that is no template', u32(1), 32],
  ['no channel', Buffer.alloc(0), 22],
  ['for more than a template takes', Buffer.concat([u32(1), Buffer.alloc(16 * 1024 + 1)]), 22],
])('refuses to fork %s', async (_, rest, errno) => {
  start();
  listen();
  child.stdin.write(spawnFrame(1, 'sleep 1000', 0));
  await eventually('it runs', () => frames.some(({ type }) => type === 'spawned'));
  const credit = u32(1000);
  const payload = Buffer.concat([Buffer.from([2]), credit, credit, credit, rest]);
  child.stdin.write(encodeFrame(HOST_FRAME.fork, 2, payload));
  await eventually('it answers', () => frames.some(({ type }) => type === 'spawn_failed'));
  expect(frames.at(-1)).toMatchObject({ type: 'spawn_failed', channel: 2, errno });
});

it('takes no notice of frames for channels that do not exist', async () => {
  start();
  listen();
  for (const type of Object.values(HOST_FRAME)) child.stdin.write(encodeFrame(type, 4711, Buffer.alloc(2)));
  child.stdin.write(encodeFrame(HOST_FRAME.ping, 0, Buffer.from('end')));
  await eventually('it answers', () => frames.filter(({ type }) => type === 'pong').length === 2);
  expect(frames.map(({ type }) => type)).toEqual([
    'ready',
    'ready',
    'pong',
    'spawn_failed',
    'counted',
    'stands_still',
    'goes_on',
    'spawn_failed',
    'pong',
  ]);
});

it('stays small when the host gives credit and does not read', async () => {
  start();
  for (let channel = 1; channel <= 8; channel++) child.stdin.write(spawnFrame(channel, 'yes', 0xffff_fff0));
  await eventually('the programs run', () => processesWith('yes') >= 8);
  const residentBytes = () => {
    const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
  };
  await eventually('its own buffer is full', () => residentBytes() > MIB);
  expect(residentBytes()).toBeLessThan(8 * MIB);
  let pongs = 0;
  const decoder = new FrameDecoder();
  child.stdout.on('data', (bytes: Buffer) => {
    pongs += must(decoder.push(bytes)).filter(({ type }) => type === 'pong').length;
  });
  child.stdin.write(encodeFrame(HOST_FRAME.ping, 0, Buffer.from('still here')));
  await eventually('it answers', () => pongs === 1);
});

it('keeps a finished program and its channel apart when the same number comes again', async () => {
  start();
  listen();
  child.stdin.write(spawnFrame(1, 'echo first', 1000));
  await eventually('the first is gone', () => frames.some(({ type }) => type === 'gone'));
  child.stdin.write(spawnFrame(1, 'echo refused', 1000));
  await eventually('the number is refused', () => frames.some(({ type }) => type === 'spawn_failed'));
  child.stdin.write(Buffer.concat([encodeFrame(HOST_FRAME.release, 1)]));
  await eventually('it is released', () => frames.some(({ type }) => type === 'released'));
  child.stdin.write(spawnFrame(1, 'echo second', 1000));
  await eventually('the second is gone', () => frames.filter(({ type }) => type === 'gone').length === 2);
  const texts = frames.flatMap((frame) =>
    frame.type === 'stdout' ? [Buffer.from(frame.bytes).toString()] : [],
  );
  expect(texts).toEqual(['first\n', 'second\n']);
});
