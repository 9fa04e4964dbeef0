/** Messages of a kernel's control pair: u32 big-endian length, then that many bytes, at most `maxBytes`. */
import type { GuestFailure } from './failure.ts';

const LENGTH_BYTES = 4;

export function lengthPrefixed(body: Uint8Array): Buffer {
  const message = Buffer.allocUnsafe(LENGTH_BYTES + body.byteLength);
  message.writeUInt32BE(body.byteLength, 0);
  message.set(body, LENGTH_BYTES);
  return message;
}

export interface DecodedBodies {
  /** Also those that came before what failed: they were sent, and count. */
  readonly bodies: readonly Buffer[];
  readonly failure?: GuestFailure;
}

export class LengthPrefixedDecoder {
  readonly #maxBytes: number;
  #parts: Buffer[] = [];
  #bytes = 0;
  #failure: GuestFailure | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The bodies that are complete with these bytes. After a failure it takes nothing more. */
  push(bytes: Uint8Array): DecodedBodies {
    if (this.#failure !== undefined) return { bodies: [], failure: this.#failure };
    this.#parts.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    this.#bytes += bytes.byteLength;
    const bodies: Buffer[] = [];
    while (this.#bytes >= LENGTH_BYTES) {
      const length = this.#peek(LENGTH_BYTES).readUInt32BE(0);
      if (length > this.#maxBytes) {
        const message = `a message of ${length} bytes, expected at most ${this.#maxBytes}`;
        this.#failure = { reason: 'protocol', message };
        this.#parts = [];
        return { bodies, failure: this.#failure };
      }
      if (this.#bytes < LENGTH_BYTES + length) break;
      const whole = this.#peek(LENGTH_BYTES + length);
      bodies.push(whole.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
      this.#parts = whole.length > LENGTH_BYTES + length ? [whole.subarray(LENGTH_BYTES + length)] : [];
      this.#bytes -= LENGTH_BYTES + length;
    }
    return { bodies };
  }

  #peek(count: number): Buffer {
    const first = this.#parts[0];
    if (first !== undefined && first.length >= count && this.#parts.length === 1) return first;
    const joined = Buffer.concat(this.#parts);
    this.#parts = [joined];
    return joined;
  }
}
