import { describe, expect, it } from 'vitest';
import {
  encodeFrame,
  FrameDecoder,
  HOST_FRAME,
  MAX_FRAME_LENGTH,
} from '../../../host-agent/guest-link/frames.ts';
import { frameBytes } from './guest-frames.ts';

const pong = frameBytes(0x82, 0, Buffer.from('echo'));
const stdout = frameBytes(0x85, 7, Buffer.from('text'));
const exit = frameBytes(0x88, 7, Buffer.from('0000000300000000000000010000000500000002', 'hex'));

describe('encodeFrame', () => {
  it('puts length, type and channel before the payload', () => {
    expect(encodeFrame(HOST_FRAME.stdin, 0x01020304, Buffer.from('ab')).toString('hex')).toBe(
      '00000007' + '04' + '01020304' + '6162',
    );
    expect(encodeFrame(HOST_FRAME.mute, 1).toString('hex')).toBe('00000005' + '0a' + '00000001');
  });
});

describe('FrameDecoder', () => {
  it('gives the same frames wherever the bytes are cut', () => {
    const whole = Buffer.concat([pong, stdout, exit]);
    for (let size = 1; size <= whole.length; size++) {
      const decoder = new FrameDecoder();
      const frames = [];
      for (let at = 0; at < whole.length; at += size) {
        const result = decoder.push(whole.subarray(at, at + size));
        if (result.ok) frames.push(...result.value);
      }
      expect(frames).toEqual([
        { type: 'pong', payload: Buffer.from('echo') },
        { type: 'stdout', channel: 7, bytes: Buffer.from('text') },
        { type: 'exit', channel: 7, code: 3, signal: 0, cpuMs: 2 ** 32 + 5, maxRssBytes: 2048 },
      ]);
    }
  });

  it.each([
    ['a length of nothing', Buffer.from('00000000', 'hex')],
    ['a length below a head', Buffer.from('00000004', 'hex')],
    ['a length beyond the bound', Buffer.from((MAX_FRAME_LENGTH + 1).toString(16).padStart(8, '0'), 'hex')],
    ['the highest length', Buffer.from('ffffffff', 'hex')],
    ['an unknown type', frameBytes(0x7f, 0, Buffer.alloc(0))],
    ['a type of the host', frameBytes(0x03, 0, Buffer.alloc(0))],
    ['a ready that is too short', frameBytes(0x81, 0, Buffer.alloc(4))],
    ['a pong that is too long', frameBytes(0x82, 0, Buffer.alloc(65))],
    ['a spawned without a pid', frameBytes(0x83, 1, Buffer.alloc(0))],
    ['a spawn failure without a reason', frameBytes(0x84, 1, Buffer.alloc(3))],
    ['an exit that is too long', frameBytes(0x88, 1, Buffer.alloc(21))],
    ['a kill without its outcome', frameBytes(0x89, 1, Buffer.alloc(4))],
    ['credit for an output stream', frameBytes(0x8a, 1, Buffer.from([1, 0, 0, 0, 1]))],
    ['an error that is too long', frameBytes(0x8b, 1, Buffer.alloc(257))],
    ['a release with a payload', frameBytes(0x8c, 1, Buffer.alloc(1))],
    ['a count of no length', frameBytes(0x8e, 0, Buffer.alloc(3))],
    ['an end with a payload', frameBytes(0x8d, 1, Buffer.alloc(1))],
  ])('refuses %s, and everything after it', (_, bytes) => {
    const decoder = new FrameDecoder();
    expect(decoder.push(Buffer.concat([pong, bytes]))).toMatchObject({
      failure: { reason: 'malformed_frame' },
    });
    expect(decoder.push(pong)).toMatchObject({ failure: { reason: 'malformed_frame' } });
  });

  it('takes the longest frame there may be', () => {
    const longest = frameBytes(0x85, 1, Buffer.alloc(MAX_FRAME_LENGTH - 5));
    expect(new FrameDecoder().push(longest)).toMatchObject({ ok: true, value: [{ type: 'stdout' }] });
  });

  it('puts a long frame together from pieces of any size', () => {
    const bytes = Buffer.alloc(200_000, 'abcdefg');
    const stream = Buffer.concat([frameBytes(0x85, 1, bytes), exit, frameBytes(0x86, 2, bytes), pong]);
    for (const size of [7, 4096, 65_536, 200_009, 200_010, 300_000]) {
      const decoder = new FrameDecoder();
      const frames = [];
      for (let at = 0; at < stream.length; at += size) {
        const result = decoder.push(stream.subarray(at, at + size));
        if (result.ok) frames.push(...result.value);
      }
      expect(frames.map(({ type }) => type)).toEqual(['stdout', 'exit', 'stderr', 'pong']);
      for (const frame of frames)
        if ('bytes' in frame) expect(bytes.equals(frame.bytes as Buffer)).toBe(true);
    }
  });

  it('keeps no large block alive for a short payload', () => {
    const block = Buffer.concat([stdout, Buffer.alloc(1_000_000)]);
    const result = new FrameDecoder().push(block.subarray(0, stdout.length));
    const [frame] = result.ok ? result.value : [];
    expect(frame?.type === 'stdout' && frame.bytes.buffer.byteLength).toBe(4);
  });

  it('never throws, whatever comes', () => {
    let state = 1;
    const next = () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return state >>> 16;
    };
    for (let round = 0; round < 2000; round++) {
      const decoder = new FrameDecoder();
      const bytes = Buffer.concat([pong, stdout, exit]);
      for (let i = 0; i < 3; i++) bytes[next() % bytes.length] = next() & 0xff;
      const cut = next() % bytes.length;
      const results = [decoder.push(bytes.subarray(0, cut)), decoder.push(bytes.subarray(cut))];
      for (const result of results) if (!result.ok) expect(result.failure.reason).toBe('malformed_frame');
    }
  });
});
