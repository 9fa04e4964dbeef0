import { expect, test } from 'vitest';
import { bundleBytes, encodeBundle, framesOf, MAX_BUNDLED_FRAMES } from '../../shared/bundle.ts';
import { encodeFrame } from '../../shared/frames.ts';
import { MAX_FRAME_BYTES } from '../../shared/limits.ts';

const frame = (length: number) => encodeFrame({ type: 'output' }, new Uint8Array(length).fill(7));

test('the frames of a bundle are those that were put into it, in their order', () => {
  const frames = [frame(0), frame(1), frame(70_000)];
  const bundle = encodeBundle(frames);
  expect(bundle).toHaveLength(bundleBytes(frames));
  expect(framesOf(bundle.buffer)).toEqual({ ok: true, value: frames });
});

test('a message that is no bundle is its own frame', () => {
  const single = frame(3);
  expect(framesOf(single.buffer)).toEqual({ ok: true, value: [single] });
  expect(framesOf(new ArrayBuffer(0))).toMatchObject({ ok: true, value: [new Uint8Array(0)] });
});

test.each<[string, Uint8Array[]]>([
  ['no frame', []],
  ['too many frames', Array.from({ length: MAX_BUNDLED_FRAMES + 1 }, () => frame(0))],
  ['more bytes than a message has', [frame(MAX_FRAME_BYTES / 2), frame(MAX_FRAME_BYTES / 2)]],
])('a bundle of %s is not made', (_name, frames) => {
  expect(() => encodeBundle(frames)).toThrow(RangeError);
});

test.each<[string, number[]]>([
  ['no frame', [0, 0]],
  ['half a length', [0, 0, 0, 0, 0]],
  ['a frame that ends after the message', [0, 0, 0, 0, 0, 2, 1]],
  ['a length beyond 31 bits', [0, 0, 0xff, 0xff, 0xff, 0xff, 1]],
])('a bundle with %s is a violation', (_name, bytes) => {
  expect(framesOf(new Uint8Array(bytes).buffer)).toMatchObject({ ok: false, code: 'protocol_violation' });
});

test('a bundle with more frames than allowed is a violation, whoever made it', () => {
  const many = new Uint8Array(2 + (MAX_BUNDLED_FRAMES + 1) * 4);
  expect(framesOf(many.buffer)).toMatchObject({ ok: false, code: 'protocol_violation' });
});
