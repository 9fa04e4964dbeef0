/**
 * How a piece of a checkpoint is stored: compressed, then sealed under the key of its snapshot. The work of a thread of
 * its own, so nothing here waits, and large buffers are made once: on many machines touching fresh memory takes longer
 * than what is done to it.
 */
import { createCipheriv, createDecipheriv, createHmac, hash } from 'node:crypto';
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { uncompressedFrame } from './uncompressed-frame.ts';

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** What does not compress is given up on soon. */
const COMPRESSION_LEVEL = 1;
/** 256 KiB: what finds as much as a larger one, and does not fill as much memory for each piece. */
const WINDOW_LOG = 18;
/** What the compressor may add to bytes that do not compress. */
const COMPRESSION_ALLOWANCE_BYTES = 32 * 1024;
/** What passes through the cipher at once: its result is copied from where it still lies in the processor's cache. */
const STEP_BYTES = 64 * 1024;
/** So many parts of a piece, evenly spread, say whether it is worth compressing, … */
const SAMPLES = 16;
const SAMPLE_BYTES = 4 * 1024;
/** … unless all of them together become hardly less. */
const WORTHLESS_RATIO = 0.98;

/** Enough for whatever becomes of a piece of so many bytes. */
export function sealedBytesAtMost(pieceBytes: number): number {
  return NONCE_BYTES + pieceBytes + COMPRESSION_ALLOWANCE_BYTES + TAG_BYTES;
}

/** Of one snapshot. */
export interface SealingKeys {
  key: Uint8Array;
  nonceKey: Uint8Array;
  additionalData: Uint8Array;
}

export interface SealedPiece {
  /** Of `stored`, in hexadecimal. */
  sha256: string;
  /** The nonce, the ciphertext, the tag. */
  stored: Uint8Array<ArrayBuffer>;
}

/**
 * The nonce is derived from what is sealed: equal pieces are equal when they are stored, and no two different ones have
 * the same nonce. `into`: what it lies in, where that is large enough.
 */
export function sealPiece(
  { key, nonceKey, additionalData }: SealingKeys,
  piece: Uint8Array,
  into?: ArrayBuffer,
): SealedPiece {
  const compressed = isWorthCompressing(piece) ? [compress(piece)] : uncompressedFrame(piece);
  const mac = createHmac('sha256', nonceKey);
  for (const part of compressed) mac.update(part);
  const nonce = mac.digest().subarray(0, NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(additionalData);
  const bytes = NONCE_BYTES + compressed.reduce((sum, { length }) => sum + length, 0) + TAG_BYTES;
  const hasRoom = into !== undefined && into.byteLength >= bytes;
  const stored = hasRoom ? Buffer.from(into, 0, bytes) : Buffer.allocUnsafeSlow(bytes);
  stored.set(nonce);
  let end = NONCE_BYTES;
  for (const part of compressed) end = inSteps(part, stored, end, (step) => cipher.update(step));
  cipher.final();
  stored.set(cipher.getAuthTag(), end);
  return { sha256: hash('sha256', stored), stored };
}

function compress(piece: Uint8Array): Uint8Array {
  return zstdCompressSync(piece, {
    chunkSize: piece.length + COMPRESSION_ALLOWANCE_BYTES,
    params: {
      [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL,
      [constants.ZSTD_c_windowLog]: WINDOW_LOG,
    },
  });
}

function isWorthCompressing(piece: Uint8Array): boolean {
  const stepBytes = Math.floor(piece.length / SAMPLES);
  if (stepBytes < SAMPLE_BYTES) return true;
  const samples = Array.from({ length: SAMPLES }, (_, n) =>
    piece.subarray(n * stepBytes, n * stepBytes + SAMPLE_BYTES),
  );
  return compress(Buffer.concat(samples)).length < WORTHLESS_RATIO * SAMPLES * SAMPLE_BYTES;
}

/** Undefined for what is not a piece of this size that was sealed under these keys. */
export function openPiece(
  { key, additionalData }: SealingKeys,
  stored: Uint8Array,
  bytes: number,
): Uint8Array<ArrayBuffer> | undefined {
  if (stored.length <= NONCE_BYTES + TAG_BYTES) return undefined;
  try {
    const decipher = createDecipheriv(CIPHER, key, stored.subarray(0, NONCE_BYTES));
    decipher.setAAD(additionalData).setAuthTag(stored.subarray(-TAG_BYTES));
    const compressed = Buffer.allocUnsafeSlow(stored.length - NONCE_BYTES - TAG_BYTES);
    inSteps(stored.subarray(NONCE_BYTES, -TAG_BYTES), compressed, 0, (step) => decipher.update(step));
    decipher.final();
    // A buffer of exactly this size would be followed by an empty one, for which all is copied together.
    const chunkSize = Math.max(bytes + 1, constants.Z_MIN_CHUNK);
    const piece = zstdDecompressSync(compressed, { chunkSize, maxOutputLength: chunkSize });
    return piece.length === bytes ? piece : undefined;
  } catch {
    return undefined;
  }
}

/** Where it ends in `to`. */
function inSteps(from: Uint8Array, to: Buffer, at: number, work: (step: Uint8Array) => Buffer): number {
  let end = at;
  for (let offset = 0; offset < from.length; offset += STEP_BYTES) {
    const done = work(from.subarray(offset, offset + STEP_BYTES));
    to.set(done, end);
    end += done.length;
  }
  return end;
}
