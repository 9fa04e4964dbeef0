/**
 * Output beyond the replay window: kept in memory for readers, within a budget. Over the budget the newest frames are
 * "held": they are not acknowledged, so the host's credit runs out and the program blocks.
 */
import { concatBytes } from '../../../../shared/encoding.ts';
import { REPLAY_RING_BYTES } from '../../../../shared/limits.ts';
import type { OutputPiece } from '../rows/records.ts';

/** Small pieces are joined up to this size, so that a ring never holds very many. */
const JOINED_BYTES = 32_768;

interface RingPiece extends OutputPiece {
  /** Frame that brought the last byte of the piece. */
  seq: number;
}

export class OutputRing {
  readonly #pieces: RingPiece[] = [];
  #bytes = 0;
  /** Number of the piece at the front, counting those that were let go. */
  #first = 0;

  get isEmpty(): boolean {
    return this.#pieces.length === 0;
  }

  get isOverBudget(): boolean {
    return this.#bytes > REPLAY_RING_BYTES;
  }

  push(piece: RingPiece): void {
    this.#bytes += piece.bytes.length;
    const last = this.#pieces.at(-1);
    const joins =
      last?.stream === piece.stream &&
      last.offset + last.bytes.length === piece.offset &&
      last.bytes.length + piece.bytes.length <= JOINED_BYTES;
    if (!joins) {
      this.#pieces.push(piece);
      return;
    }
    last.bytes = concatBytes([last.bytes, piece.bytes]);
    last.seq = piece.seq;
  }

  /** Lets the oldest pieces go while the ring is over its budget and `mayGo` allows it. */
  trim(mayGo: (piece: OutputPiece) => boolean): void {
    for (;;) {
      const [oldest] = this.#pieces;
      if (oldest === undefined || !this.isOverBudget || !mayGo(oldest)) return;
      this.#pieces.shift();
      this.#first += 1;
      this.#bytes -= oldest.bytes.length;
    }
  }

  clear(): void {
    this.#first += this.#pieces.length;
    this.#pieces.length = 0;
    this.#bytes = 0;
  }

  /** The first frame that must not be acknowledged yet. */
  get heldFrom(): number | undefined {
    let excess = this.#bytes - REPLAY_RING_BYTES;
    for (let index = this.#pieces.length - 1; index >= 0; index -= 1) {
      if (excess <= 0) return undefined;
      const piece = this.#pieces[index];
      if (piece === undefined) return undefined;
      excess -= piece.bytes.length;
      if (excess <= 0) return piece.seq;
    }
    return undefined;
  }

  /** Pieces from the last one before `next` on, which may have grown since, up to `maxBytes`. */
  read(next: number, maxBytes: number): { pieces: OutputPiece[]; next: number } {
    const start = Math.max(0, next - 1 - this.#first);
    const pieces: OutputPiece[] = [];
    let bytes = 0;
    for (let index = start; index < this.#pieces.length && bytes < maxBytes; index += 1) {
      const piece = this.#pieces[index];
      if (piece === undefined) break;
      pieces.push({ ...piece });
      // One that was read before and did not grow must not be all that is given, however large it is.
      if (this.#first + index >= next) bytes += piece.bytes.length;
    }
    return { pieces, next: this.#first + start + pieces.length };
  }
}
