/** SHA-256 of a stream that may go on on another host: its state can be carried in the middle. */
import * as z from 'zod';
import { digestLibrary } from './library.ts';

/** OpenSSL's SHA256_CTX, in the byte order that every machine of ours has: 8 words, bits so far, a block, how much of it is filled, 32. */
const STATE_BYTES = 112;
const BITS_AT = 32;
const FILLED_AT = 104;
const DIGEST_BYTES_AT = 108;
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;

export const CarriedDigestSchema = z
  .base64()
  .length(Math.ceil(STATE_BYTES / 3) * 4)
  .refine((text) => isState(Buffer.from(text, 'base64')), { error: 'is no state of SHA-256' });
export type CarriedDigest = z.infer<typeof CarriedDigestSchema>;

export class StreamDigest {
  readonly #library = digestLibrary();
  readonly #state: Uint8Array;

  constructor(carried?: CarriedDigest) {
    this.#state = new Uint8Array(STATE_BYTES);
    if (carried === undefined) this.#library.begin(this.#state);
    else this.#state.set(Buffer.from(carried, 'base64'));
  }

  update(bytes: Uint8Array): void {
    this.#library.update(this.#state, bytes);
  }

  /** Of what came so far. */
  hex(): string {
    const digest = Buffer.alloc(DIGEST_BYTES);
    this.#library.finish(this.#state, digest);
    return digest.toString('hex');
  }

  carry(): CarriedDigest {
    return Buffer.from(this.#state).toString('base64');
  }
}

/** What is counted and what fills the block must agree: OpenSSL writes where the state says. */
function isState(state: Buffer): boolean {
  if (state.length !== STATE_BYTES) return false;
  const filled = state.readUInt32LE(FILLED_AT);
  const bits = state.readUInt32LE(BITS_AT);
  return filled === (bits / 8) % BLOCK_BYTES && state.readUInt32LE(DIGEST_BYTES_AT) === DIGEST_BYTES;
}
