/** The last bytes that a program wrote, by position: both streams in the order in which they came. */
import type { ProcessStream } from '../../../shared/program.ts';
import type { CarriedRing } from './carried.ts';

/** A piece that is smaller grows instead of being followed by another, so that keystrokes make few of them. */
const GROWING_BYTES = 1_024;
/** A program that writes a byte to one stream and then to the other makes a piece of each. */
const MAX_PIECES = 8_192;

export interface Piece {
  stream: ProcessStream;
  offset: number;
  bytes: Uint8Array;
}

export class OutputRing {
  readonly #capacityBytes: number;
  #pieces: Piece[] = [];
  #endOffset = 0;
  #startOffset = 0;

  constructor(capacityBytes: number) {
    this.#capacityBytes = capacityBytes;
  }

  carry(): CarriedRing {
    return {
      start_offset: this.#startOffset,
      end_offset: this.#endOffset,
      pieces: this.#pieces.map(({ stream, offset, bytes }) => ({
        stream,
        offset,
        bytes: Buffer.from(bytes).toString('base64'),
      })),
    };
  }

  goOnFrom(carried: CarriedRing): void {
    this.#startOffset = carried.start_offset;
    this.#endOffset = carried.end_offset;
    this.#pieces = carried.pieces.map(({ stream, offset, bytes }) => ({
      stream,
      offset,
      bytes: Buffer.from(bytes, 'base64'),
    }));
  }

  /** Of the oldest byte that is kept. */
  get startOffset(): number {
    return this.#startOffset;
  }

  /** Of the next byte that comes. */
  get endOffset(): number {
    return this.#endOffset;
  }

  /** What lies from `keepFrom` on stays, also beyond the capacity: the caller bounds it. */
  push(stream: ProcessStream, bytes: Uint8Array, keepFrom: number = Number.POSITIVE_INFINITY): void {
    const last = this.#pieces.at(-1);
    if (last?.stream === stream && last.bytes.length + bytes.length <= GROWING_BYTES) {
      last.bytes = Buffer.concat([last.bytes, bytes]);
    } else {
      this.#pieces.push({ stream, offset: this.#endOffset, bytes });
    }
    this.#endOffset += bytes.length;
    this.#trim(keepFrom);
  }

  /** What is kept from the position on, up to the end of one piece; undefined where nothing is yet. */
  from(offset: number): Piece | undefined {
    const piece = this.#pieces[this.#indexOf(offset)];
    if (piece === undefined) return undefined;
    const start = Math.max(offset, piece.offset, this.#startOffset);
    return { stream: piece.stream, offset: start, bytes: piece.bytes.subarray(start - piece.offset) };
  }

  /** Of the first piece that ends behind the position. */
  #indexOf(offset: number): number {
    let from = 0;
    let to = this.#pieces.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      const piece = this.#pieces[middle];
      if (piece !== undefined && piece.offset + piece.bytes.length <= offset) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  #trim(keepFrom: number): void {
    const oldestKept = this.#pieces.at(-MAX_PIECES)?.offset ?? 0;
    const wanted = Math.min(Math.max(this.#endOffset - this.#capacityBytes, oldestKept), keepFrom);
    this.#startOffset = Math.max(this.#startOffset, wanted);
    let gone = 0;
    for (const { offset, bytes } of this.#pieces) {
      if (offset + bytes.length > this.#startOffset) break;
      gone += 1;
    }
    if (gone > 0) this.#pieces.splice(0, gone);
  }
}
