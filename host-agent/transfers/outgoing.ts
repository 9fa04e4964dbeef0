/** The bytes of one transfer on their way to the edge: hashed by nobody, counted, and held back by its window. */
import { TRANSFER_CHUNK_BYTES } from '../../shared/transfer.ts';

export class Outgoing {
  readonly #send: (offset: number, bytes: Uint8Array) => boolean;
  readonly #signal: AbortSignal;
  readonly #windowBytes: number;
  #sentBytes = 0;
  #takenBytes = 0;
  #wake: (() => void) | undefined;

  constructor(
    signal: AbortSignal,
    windowBytes: number,
    send: (offset: number, bytes: Uint8Array) => boolean,
  ) {
    this.#windowBytes = windowBytes;
    this.#signal = signal;
    this.#send = send;
    signal.addEventListener('abort', () => this.#wake?.(), { once: true });
  }

  get bytes(): number {
    return this.#sentBytes;
  }

  /** Resolves when all of it was sent; rejects when nobody takes it any more. */
  async push(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      await this.#room();
      const room = this.#takenBytes + this.#windowBytes - this.#sentBytes;
      const piece = bytes.subarray(at, at + Math.min(room, TRANSFER_CHUNK_BYTES));
      if (!this.#send(this.#sentBytes, piece)) throw new Error('the link is down');
      this.#sentBytes += piece.length;
      at += piece.length;
    }
  }

  /** False where the edge says that it took what was never sent. */
  taken(bytes: number): boolean {
    if (bytes > this.#sentBytes) return false;
    this.#takenBytes = Math.max(this.#takenBytes, bytes);
    this.#wake?.();
    return true;
  }

  async #room(): Promise<void> {
    while (this.#sentBytes - this.#takenBytes >= this.#windowBytes && !this.#signal.aborted) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    if (this.#signal.aborted) throw new Error('nobody reads any more');
  }
}
