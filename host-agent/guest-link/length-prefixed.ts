/** Messages on a control pair: u32 big-endian length, then that many bytes, at most `maxBytes`. */
import type { GuestFailure } from './failure.ts';

const LENGTH_BYTES = 4;
const FIRST_ROOM_BYTES = 256 * 1024;

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

/**
 * The guest chooses in how small pieces a message comes, so a piece costs what its bytes cost: it is copied to its
 * place, and the room for a message grows with what came of it, not with what its length announces.
 */
export class LengthPrefixedDecoder {
  readonly #maxBytes: number;
  readonly #length = Buffer.alloc(LENGTH_BYTES);
  #lengthBytes = 0;
  #room = Buffer.alloc(0);
  #bytes = 0;
  #failure: GuestFailure | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The bodies that are complete with these bytes. After a failure it takes nothing more. */
  push(bytes: Uint8Array): DecodedBodies {
    const bodies: Buffer[] = [];
    for (let at = 0; at < bytes.byteLength && this.#failure === undefined; ) {
      at += this.#lengthBytes < LENGTH_BYTES ? this.#takeLength(bytes, at) : this.#takeBody(bytes, at);
      if (this.#lengthBytes === LENGTH_BYTES && this.#bytes === this.#bodyLength) bodies.push(this.#whole());
    }
    return this.#failure === undefined ? { bodies } : { bodies, failure: this.#failure };
  }

  /** What came of a message that is not whole yet: given to another decoder it goes on from there. */
  get pending(): Buffer {
    return Buffer.concat([this.#length.subarray(0, this.#lengthBytes), this.#room.subarray(0, this.#bytes)]);
  }

  get #bodyLength(): number {
    return this.#length.readUInt32BE(0);
  }

  #takeLength(bytes: Uint8Array, at: number): number {
    const piece = bytes.subarray(at, at + LENGTH_BYTES - this.#lengthBytes);
    this.#length.set(piece, this.#lengthBytes);
    this.#lengthBytes += piece.byteLength;
    if (this.#lengthBytes === LENGTH_BYTES && this.#bodyLength > this.#maxBytes) {
      const message = `a message of ${this.#bodyLength} bytes, expected at most ${this.#maxBytes}`;
      this.#failure = { reason: 'protocol', message };
      this.#room = Buffer.alloc(0);
      this.#lengthBytes = 0;
    }
    return piece.byteLength;
  }

  #takeBody(bytes: Uint8Array, at: number): number {
    const piece = bytes.subarray(at, at + this.#bodyLength - this.#bytes);
    this.#reserve(this.#bytes + piece.byteLength);
    this.#room.set(piece, this.#bytes);
    this.#bytes += piece.byteLength;
    return piece.byteLength;
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#room.byteLength) return;
    const wanted = Math.max(bytes, 2 * this.#room.byteLength, FIRST_ROOM_BYTES);
    const room = Buffer.allocUnsafeSlow(Math.min(wanted, this.#bodyLength));
    this.#room.copy(room, 0, 0, this.#bytes);
    this.#room = room;
  }

  #whole(): Buffer {
    const body = this.#room.subarray(0, this.#bytes);
    this.#room = Buffer.alloc(0);
    this.#bytes = 0;
    this.#lengthBytes = 0;
    return body;
  }
}
