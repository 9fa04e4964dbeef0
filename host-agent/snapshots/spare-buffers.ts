/** Memory of one size that is used again: on many machines touching fresh memory takes longer than what is done to it. */
export class SpareBuffers {
  readonly #bytes: number;
  readonly #spare: ArrayBuffer[] = [];

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  take(): ArrayBuffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.#bytes).buffer;
  }

  /** One of another size, or that was given away meanwhile, is let go. */
  give(buffer: ArrayBuffer): void {
    if (buffer.byteLength === this.#bytes) this.#spare.push(buffer);
  }
}
