import { beforeEach, describe, expect, it } from 'vitest';
import type { Channel } from '../../../host-agent/guest-link/channel.ts';
import { HOST_FRAME } from '../../../host-agent/guest-link/frames.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { HandMadeGuest } from './guest-frames.ts';

const READY = Buffer.from([1, 0, 0, 0, 1]);
const EXITED = Buffer.alloc(20);
const WAIT_MS = PATIENCE_MS;
const WINDOW_BYTES = 1024 * 1024;
const FRAME_BYTES = 256 * 1024;

let guest: HandMadeGuest;
beforeEach(async () => {
  guest = new HandMadeGuest();
  await guest.send(0x81, 0, READY);
});

const program = { argv: ['x'], cwd: '/', environment: [] };

async function started(options: Partial<Parameters<typeof guest.link.spawn>[0]> = {}): Promise<Channel> {
  const spawned = guest.link.spawn({ ...program, ...options });
  const id = (await guest.takeSent()).at(-1)?.channel ?? 0;
  await guest.send(0x83, id, Buffer.from([0, 0, 0, 9]));
  const channel = await spawned;
  if (!channel.ok) throw new Error(channel.failure.message);
  return channel.value;
}

/** As much of a stream as there is credit for. */
async function sendWindow(type: number): Promise<void> {
  for (let sent = 0; sent < WINDOW_BYTES; sent += FRAME_BYTES) {
    await guest.send(type, 1, Buffer.alloc(FRAME_BYTES));
  }
}

/** The bytes that these frames, all of them credit for the stream, give back. */
function creditsOf(frames: readonly { type: number; payload: Buffer }[], stream: number): number {
  let bytes = 0;
  for (const { type, payload } of frames) {
    expect([type, payload.readUInt8(0)]).toEqual([HOST_FRAME.credit, stream]);
    bytes += payload.readUInt32BE(1);
  }
  return bytes;
}

const NOTHING = new Uint8Array(0);
const closedWith = async () => (await guest.link.closed).reason;

describe('a link', () => {
  it('is ready once the supervisor says so', async () => {
    expect(await guest.link.ready(WAIT_MS)).toEqual({ ok: true, value: { version: 1, pid: 1 } });
    const silent = new HandMadeGuest();
    expect(await silent.link.ready(1)).toMatchObject({ failure: { reason: 'timeout' } });
  });

  it('stands still for who asks for it while the guest is coming to rest', async () => {
    const rested = guest.link.rest(() => void guest.link.goOn(WAIT_MS), WAIT_MS);
    const stood = guest.link.standStill([], WAIT_MS);
    const { standStill, goOn } = HOST_FRAME;
    expect((await guest.takeSent()).map(({ type }) => type)).toEqual([standStill, goOn, standStill]);
    await guest.send(0x8f, 0, NOTHING);
    await guest.send(0x90, 0, NOTHING);
    expect(await rested).toMatchObject({ ok: true });
    await guest.send(0x8f, 0, NOTHING);
    expect(await stood).toMatchObject({ ok: true });
    expect(await guest.link.standStill([], WAIT_MS)).toMatchObject({ failure: { reason: 'limit' } });
  });

  it('refuses another version of the protocol', async () => {
    await guest.send(0x81, 0, Buffer.from([2, 0, 0, 0, 1]));
    expect(await closedWith()).toBe('malformed_frame');
  });

  it('forks a template under the number of its channel, and says when it is gone', async () => {
    const template = await started({ isTemplate: true });
    await guest.takeSent();
    const control: string[] = [];
    const onControl = (bytes: Uint8Array) => control.push(Buffer.from(bytes).toString());
    const preparation = Buffer.from('so');
    const forked = guest.link.fork({ template, preparation, onControl, timeoutMs: WAIT_MS });
    const failed = guest.link.fork({ template, preparation, onControl, timeoutMs: WAIT_MS });
    const [first, second] = await guest.takeSent();
    expect(first).toMatchObject({ type: HOST_FRAME.fork });
    expect([...(first?.payload ?? [])]).toEqual([
      2,
      0,
      16,
      0,
      0,
      0,
      16,
      0,
      0,
      0,
      16,
      0,
      0,
      0,
      0,
      0,
      template.id,
      ...preparation,
    ]);
    await guest.send(0x83, first?.channel ?? 0, Buffer.from([0, 0, 0, 9]));
    await guest.send(0x87, first?.channel ?? 0, Buffer.from('hello'));
    await guest.send(0x84, second?.channel ?? 0, Buffer.from([0, 0, 0, 32]));
    expect(await forked).toMatchObject({ ok: true, value: { pid: 9 } });
    expect(control).toEqual(['hello']);
    expect(await failed).toMatchObject({ failure: { reason: 'spawn_failed', errno: 'EPIPE' } });
  });

  it('wakes the guest before a frame, but not to ask whether it may sleep', async () => {
    const before = guest.wakes.length;
    void guest.link.ping(WAIT_MS);
    expect(guest.wakes.length).toBe(before + 1);
    const counts = [guest.link.countOthers(WAIT_MS), guest.link.countOthers(WAIT_MS)];
    expect(guest.wakes.length).toBe(before + 1);
    expect((await guest.takeSent()).map(({ type }) => type)).toEqual([
      HOST_FRAME.ping,
      HOST_FRAME.census,
      HOST_FRAME.census,
    ]);
    await guest.send(0x8e, 0, Buffer.from([0, 0, 0, 3]));
    await guest.send(0x8e, 0, Buffer.from([0, 0, 0, 0]));
    expect(await Promise.all(counts)).toEqual([
      { ok: true, value: { others: 3 } },
      { ok: true, value: { others: 0 } },
    ]);
  });

  it('is closed by a count that nobody asked for', async () => {
    await guest.send(0x8e, 0, Buffer.alloc(4));
    expect(await guest.link.countOthers(WAIT_MS)).toMatchObject({ failure: { reason: 'malformed_frame' } });
  });

  it('asks for a bounded number of counts, and gives up on a guest that does not answer', async () => {
    const waiting = Array.from({ length: 4 }, () => guest.link.countOthers(1));
    expect(await guest.link.countOthers(WAIT_MS)).toMatchObject({ failure: { reason: 'limit' } });
    expect(await waiting[0]).toMatchObject({ failure: { reason: 'timeout' } });
  });

  it('matches pongs to pings', async () => {
    const pings = [guest.link.ping(WAIT_MS), guest.link.ping(WAIT_MS), guest.link.ping(1)];
    const sent = await guest.takeSent();
    await guest.send(0x82, 0, sent[1]?.payload);
    expect(await pings[1]).toMatchObject({ ok: true });
    expect(await pings[2]).toMatchObject({ failure: { reason: 'timeout' } });
    await guest.send(0x82, 0, sent[0]?.payload);
    expect(await pings[0]).toMatchObject({ ok: true });
    await guest.send(0x82, 0, Buffer.from('unasked'));
    expect(await guest.link.spawn({ ...program, timeoutMs: 1 })).toMatchObject({
      failure: { reason: 'timeout' },
    });
  });

  it.each([
    ['output', 0x85, Buffer.from('x')],
    ['an exit', 0x88, EXITED],
    ['a start', 0x83, Buffer.from([0, 0, 0, 9])],
    ['a failed start', 0x84, Buffer.from([0, 0, 0, 2])],
    ['a release', 0x8c, Buffer.alloc(0)],
    ['an error of the supervisor', 0x8b, Buffer.from('why')],
  ])('is closed by %s of a channel that does not exist', async (_, type, payload) => {
    await guest.send(type, 4711, payload);
    expect(await closedWith()).toBe('malformed_frame');
  });

  it('fails everything that waits when it closes, and everything after', async () => {
    const channel = await started();
    const waiting = [
      guest.link.ping(WAIT_MS),
      guest.link.spawn(program),
      channel.writeStdin(Buffer.alloc(100_000)),
    ];
    guest.end();
    expect(await closedWith()).toBe('link_closed');
    for (const result of await Promise.all(waiting))
      expect(result).toMatchObject({ failure: { reason: 'link_closed' } });
    expect(await channel.exited).toMatchObject({ failure: { reason: 'link_closed' } });
    await channel.gone;
    expect(await channel.release(WAIT_MS)).toMatchObject({ failure: { reason: 'link_closed' } });
    expect(await guest.link.spawn(program)).toMatchObject({ failure: { reason: 'link_closed' } });
    expect(await guest.link.ping(WAIT_MS)).toMatchObject({ failure: { reason: 'link_closed' } });
  });

  it('names the error of a program that cannot start', async () => {
    const spawned = guest.link.spawn(program);
    const [frame] = await guest.takeSent();
    await guest.send(0x84, frame?.channel ?? 0, Buffer.from('\0\0\0\x0bno processes left', 'latin1'));
    expect(await spawned).toMatchObject({
      failure: { reason: 'spawn_failed', errno: 'EAGAIN', message: 'no processes left' },
    });
  });

  it('refuses arguments and environments beyond one frame', async () => {
    const environment = Array.from({ length: 20 }, (_, i) => `V${i}=${'x'.repeat(20_000)}`);
    expect(await guest.link.spawn({ ...program, environment })).toMatchObject({
      failure: { reason: 'limit', errno: 'E2BIG' },
    });
  });

  it('releases a program that starts after nobody waits for it', async () => {
    const late = guest.link.spawn({ ...program, timeoutMs: 1 });
    const [frame] = await guest.takeSent();
    expect(await late).toMatchObject({ failure: { reason: 'timeout' } });
    await guest.send(0x83, frame?.channel ?? 0, Buffer.from([0, 0, 0, 9]));
    expect((await guest.takeSent()).map(({ type }) => type)).toEqual([HOST_FRAME.release]);
  });
});

describe('a channel', () => {
  it('gives credit back when the sink has taken the bytes, and not before', async () => {
    const gate = Promise.withResolvers<void>();
    const channel = await started({ onOutput: () => gate.promise });
    await guest.takeSent();
    await sendWindow(0x85);
    expect(await guest.takeSent()).toEqual([]);
    gate.resolve();
    expect(creditsOf(await guest.takeSent(), 1)).toBe(WINDOW_BYTES);
    await guest.send(0x88, 1, EXITED);
    expect(await channel.exited).toMatchObject({ ok: true, value: { exitCode: 0, signal: null } });
  });

  it.each([0x85, 0x86, 0x87])(
    'closes the link when the guest sends more than its credit (type %i)',
    async (type) => {
      const gate = Promise.withResolvers<void>();
      await started({ control: true, manualControl: true, onOutput: () => gate.promise });
      await sendWindow(type);
      await guest.send(type, 1, Buffer.alloc(1));
      expect(await closedWith()).toBe('malformed_frame');
    },
  );

  it('gives credit back for what a broken sink refused', async () => {
    await started({
      onOutput: () => {
        throw new Error('the sink is broken');
      },
    });
    await guest.takeSent();
    await sendWindow(0x86);
    expect(creditsOf(await guest.takeSent(), 2)).toBe(WINDOW_BYTES);
  });

  it('sends input as far as there is credit', async () => {
    const channel = await started();
    await guest.takeSent();
    const written = channel.writeStdin(Buffer.alloc(100_000, 'i'));
    channel.closeStdin();
    const bytes = (frames: { type: number; payload: Buffer }[]) =>
      frames
        .filter(({ type }) => type === HOST_FRAME.stdin)
        .reduce((sum, { payload }) => sum + payload.length, 0);
    expect(bytes(await guest.takeSent())).toBe(64 * 1024);
    await guest.send(0x8a, 1, Buffer.from([0, 0, 1, 0, 0]));
    const rest = await guest.takeSent();
    expect(bytes(rest)).toBe(100_000 - 64 * 1024);
    expect(rest.at(-1)?.type).toBe(HOST_FRAME.stdinClose);
    expect(await written).toMatchObject({ ok: true });
    expect(await channel.writeStdin(Buffer.from('late'))).toMatchObject({
      failure: { reason: 'channel_ended' },
    });
  });

  it('closes the link when the guest gives back more input than it got', async () => {
    await started();
    await guest.send(0x8a, 1, Buffer.from([0, 0, 0, 0, 1]));
    expect(await closedWith()).toBe('malformed_frame');
  });

  it('names the signal a program died of', async () => {
    const channel = await started();
    const payload = Buffer.alloc(20);
    payload.writeUInt32BE(11, 4);
    await guest.send(0x88, 1, payload);
    expect(await channel.exited).toMatchObject({ value: { exitCode: null, signal: 'SIGSEGV' } });
  });

  it('sends nothing more once it is released', async () => {
    const channel = await started();
    await guest.takeSent();
    const released = channel.release(WAIT_MS);
    channel.mark();
    channel.signal('SIGINT', 'tree');
    void channel.release(WAIT_MS);
    const killed = channel.killSinceMark(WAIT_MS);
    expect((await guest.takeSent()).map(({ type }) => type)).toEqual([HOST_FRAME.release]);
    await guest.send(0x8c, 1);
    expect(await released).toMatchObject({ ok: true });
    expect(await killed).toMatchObject({ ok: true });
    expect(await channel.exited).toMatchObject({ failure: { reason: 'channel_ended' } });
  });

  it('says when a kill did not come to its end', async () => {
    const channel = await started();
    const killed = channel.killSinceMark(WAIT_MS);
    await guest.send(0x89, 1, Buffer.from([0, 0, 0, 3, 0]));
    expect(await killed).toMatchObject({ failure: { reason: 'limit' } });
    expect(await channel.killSinceMark(1)).toMatchObject({ failure: { reason: 'timeout' } });
  });
});
