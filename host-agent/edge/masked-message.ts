/** A binary WebSocket message of a client (RFC 6455 section 5.2): in one frame, masked with a key that nobody can guess. */
import { randomFillSync } from 'node:crypto';
import { OUTPUT_FRAME_BYTES } from '../../shared/limits.ts';

const BINARY_AND_FINAL = 0x82;
const MASKED = 0x80;
const LENGTH_16_BITS = 126;
const LENGTH_64_BITS = 127;
const KEY_BYTES = 4;
const KEYS = new Uint32Array(1024);
/** For a frame of output, its header and what stands before it here. */
const LARGE_BYTES = OUTPUT_FRAME_BYTES + 4096;
const SMALL_BYTES = 8192;
/** Kept for the next message: as many as are written at once where the other side reads. */
const MAX_SPARE = 16;

let nextKey = KEYS.length;
const spare: Buffer[] = [];

export interface MaskedMessage {
  bytes: Buffer;
  /** To be called when the bytes were written: what they lie in is used again. */
  release: () => void;
}

export function maskedMessage(parts: readonly Uint8Array[]): MaskedMessage {
  const length = parts.reduce((total, part) => total + part.length, 0);
  const startBytes = length < LENGTH_16_BITS ? 2 : length <= 0xffff ? 4 : 10;
  // The body begins at a whole word, so that it can be masked word by word.
  const bodyAt = startBytes === 4 ? 8 : 16;
  const room = takeRoom(bodyAt + length);
  const start = bodyAt - KEY_BYTES - startBytes;
  room[start] = BINARY_AND_FINAL;
  writeLength(room, start + 1, length);
  let at = bodyAt;
  for (const part of parts) {
    room.set(part, at);
    at += part.length;
  }
  mask(room, bodyAt, length);
  return { bytes: room.subarray(start, bodyAt + length), release: () => giveBack(room) };
}

function writeLength(room: Buffer, at: number, length: number): void {
  if (length < LENGTH_16_BITS) {
    room[at] = MASKED | length;
  } else if (length <= 0xffff) {
    room[at] = MASKED | LENGTH_16_BITS;
    room.writeUInt16BE(length, at + 1);
  } else {
    room[at] = MASKED | LENGTH_64_BITS;
    room.writeUInt32BE(0, at + 1);
    room.writeUInt32BE(length, at + 5);
  }
}

/** The key stands before the body, as bytes in the order in which it is laid over it: so the order of a word's bytes is no matter. */
function mask(room: Buffer, bodyAt: number, length: number): void {
  if (nextKey === KEYS.length) {
    randomFillSync(KEYS);
    nextKey = 0;
  }
  const key = KEYS[nextKey] ?? 0;
  nextKey += 1;
  const words = new Uint32Array(room.buffer, room.byteOffset, room.length >> 2);
  words[(bodyAt - KEY_BYTES) >> 2] = key;
  const end = (bodyAt + length + 3) >> 2;
  for (let index = bodyAt >> 2; index < end; index += 1) words[index] = (words[index] ?? 0) ^ key;
}

/** At least so large, beginning at a whole word and ending at one. */
function takeRoom(bytes: number): Buffer {
  if (bytes > SMALL_BYTES && bytes <= LARGE_BYTES) return spare.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  return Buffer.allocUnsafeSlow((bytes + 3) & ~3);
}

function giveBack(room: Buffer): void {
  if (room.length === LARGE_BYTES && spare.length < MAX_SPARE) spare.push(room);
}
