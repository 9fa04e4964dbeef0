/** Bytes of one stream that wait to be cut into frames: at UTF-8 character edges, and at the end of the head. */

import { concatBytes } from '../../shared/encoding.ts';
import type { CarriedQueue } from './carried.ts';
import { incompleteSuffixLength } from './utf8-edge.ts';

const NO_BYTES = new Uint8Array(0);

export class StreamQueue {
  readonly #headBytes: number;
  readonly #frameBytes: number;
  #chunks: Uint8Array[] = [];
  #waitingBytes = 0;
  /** Offset in the stream of the first waiting byte. */
  #offset = 0;
  #headEnd: number | undefined;
  #waitingSinceMs = 0;
  /** Whether all that waits is the beginning of one character. */
  #onlyPartial = false;

  constructor(limits: { headBytes: number; frameBytes: number }) {
    this.#headBytes = limits.headBytes;
    this.#frameBytes = limits.frameBytes;
  }

  carry(): CarriedQueue {
    return {
      offset: this.#offset,
      head_end: this.#headEnd ?? null,
      waiting: Buffer.from(concatBytes(this.#chunks)).toString('base64'),
    };
  }

  goOnFrom({ offset, head_end, waiting }: CarriedQueue): void {
    this.#offset = offset;
    this.#headEnd = head_end ?? undefined;
    this.#append(Buffer.from(waiting, 'base64'));
  }

  /** Offset in the stream of the first byte that was not cut yet. */
  get offset(): number {
    return this.#offset;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** Monotonic time since which bytes wait, or were last taken: by it two streams take turns. */
  get waitingSinceMs(): number {
    return this.#waitingSinceMs;
  }

  get hasCut(): boolean {
    return this.#waitingBytes > 0 && !this.#onlyPartial;
  }

  /** Where the head ends: the last character edge within its size. Undefined while the stream is not longer. */
  get headEnd(): number | undefined {
    return this.#headEnd;
  }

  /** Gives back the part of `bytes` beyond the head; it is queued too only if `queueBeyondHead`. */
  push(bytes: Uint8Array, queueBeyondHead: boolean): Uint8Array {
    if (this.#headEnd !== undefined) {
      if (queueBeyondHead) this.#append(bytes);
      return bytes;
    }
    if (this.#offset + this.#waitingBytes + bytes.length <= this.#headBytes) {
      this.#append(bytes);
      return NO_BYTES;
    }
    const waiting = concatBytes([...this.#chunks, bytes]);
    const untilHead = waiting.subarray(0, this.#headBytes - this.#offset);
    const head = untilHead.subarray(0, untilHead.length - incompleteSuffixLength(untilHead));
    this.#headEnd = this.#offset + head.length;
    this.#chunks = [];
    this.#waitingBytes = 0;
    this.#append(queueBeyondHead ? waiting : head);
    return waiting.subarray(head.length);
  }

  /** The next frame's bytes; a partial character at the end waits for the rest of it unless this is the end. */
  cut(final: boolean): { offset: number; bytes: Uint8Array } | undefined {
    if (this.#waitingBytes === 0) return undefined;
    const headLeft = this.#headEnd === undefined ? 0 : this.#headEnd - this.#offset;
    const limit = headLeft > 0 ? Math.min(headLeft, this.#frameBytes) : this.#frameBytes;
    const waiting = this.#take(limit);
    const isLast = waiting.length === headLeft || (final && waiting.length === this.#waitingBytes);
    const partial = isLast ? 0 : incompleteSuffixLength(waiting);
    if (partial === waiting.length) {
      this.#onlyPartial = true;
      return undefined;
    }
    const bytes = waiting.subarray(0, waiting.length - partial);
    const offset = this.#offset;
    this.#drop(bytes.length);
    return { offset, bytes };
  }

  #append(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    if (this.#waitingBytes === 0) this.#waitingSinceMs = performance.now();
    this.#chunks.push(bytes);
    this.#waitingBytes += bytes.length;
    this.#onlyPartial = false;
  }

  /** The first `limit` waiting bytes as one array, still queued. */
  #take(limit: number): Uint8Array {
    const first = this.#chunks[0] ?? NO_BYTES;
    if (first.length >= limit) return first.subarray(0, limit);
    if (this.#chunks.length > 1) {
      const joined: Uint8Array[] = [];
      let size = 0;
      while (size < limit) {
        const chunk = this.#chunks.shift();
        if (chunk === undefined) break;
        joined.push(chunk);
        size += chunk.length;
      }
      this.#chunks.unshift(concatBytes(joined));
    }
    return (this.#chunks[0] ?? NO_BYTES).subarray(0, limit);
  }

  #drop(bytes: number): void {
    const first = this.#chunks.shift();
    if (first !== undefined && first.length > bytes) this.#chunks.unshift(first.subarray(bytes));
    this.#offset += bytes;
    this.#waitingBytes -= bytes;
    this.#waitingSinceMs = performance.now();
  }
}
