/**
 * Several frames of a host in one message, in their order: what a short call says is then one message instead of four,
 * and a message costs both ends far more than a frame. u16 zero, then for each frame u32 big-endian length and the frame.
 * A frame begins with the length of its header, which is never zero.
 */
import { failure, type Outcome, success } from './errors.ts';
import { MAX_FRAME_BYTES } from './limits.ts';

export const MAX_BUNDLED_FRAMES = 64;
const MARK_BYTES = 2;
const LENGTH_BYTES = 4;

/** Bytes that a bundle of frames of these lengths has: a sender starts another before `MAX_FRAME_BYTES`. */
export function bundleBytes(frames: readonly Uint8Array[]): number {
  return frames.reduce((total, frame) => total + LENGTH_BYTES + frame.length, MARK_BYTES);
}

/** Throws on more than a message may hold. */
export function encodeBundle(frames: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = bundleBytes(frames);
  if (bytes > MAX_FRAME_BYTES || frames.length === 0 || frames.length > MAX_BUNDLED_FRAMES) {
    throw new RangeError(
      `1 to ${MAX_BUNDLED_FRAMES} frames of at most ${MAX_FRAME_BYTES} bytes were expected, not ${frames.length} of ${bytes}`,
    );
  }
  const bundle = new Uint8Array(bytes);
  const view = new DataView(bundle.buffer);
  let offset = MARK_BYTES;
  for (const frame of frames) {
    view.setUint32(offset, frame.length);
    bundle.set(frame, offset + LENGTH_BYTES);
    offset += LENGTH_BYTES + frame.length;
  }
  return bundle;
}

/** The frames of a message: itself, if it is no bundle. They are views of its bytes. */
export function framesOf(message: ArrayBuffer): Outcome<Uint8Array[]> {
  const bytes = new Uint8Array(message);
  if (bytes.length < MARK_BYTES || bytes[0] !== 0 || bytes[1] !== 0) return success([bytes]);
  const view = new DataView(message);
  const frames: Uint8Array[] = [];
  let offset = MARK_BYTES;
  while (offset < bytes.length) {
    if (frames.length >= MAX_BUNDLED_FRAMES) return violation(`more than ${MAX_BUNDLED_FRAMES} frames`);
    const from = offset + LENGTH_BYTES;
    const to = from <= bytes.length ? from + view.getUint32(offset) : Number.POSITIVE_INFINITY;
    if (to > bytes.length) return violation('a frame that ends after the message');
    frames.push(bytes.subarray(from, to));
    offset = to;
  }
  return frames.length === 0 ? violation('no frame') : success(frames);
}

function violation(what: string) {
  return failure('protocol_violation', `a bundle with ${what}`);
}
