/** Takes bytes in whatever pieces they come and gives them in pieces of one size; only the last may be shorter. */
export class ByteCutter {
  readonly #size: number;
  #buffer: Uint8Array<ArrayBuffer>;
  #length = 0;

  constructor(size: number) {
    this.#size = size;
    this.#buffer = new Uint8Array(size);
  }

  *push(bytes: Uint8Array): Generator<Uint8Array<ArrayBuffer>> {
    for (let at = 0; at < bytes.length; ) {
      const taken = bytes.subarray(at, at + this.#size - this.#length);
      this.#buffer.set(taken, this.#length);
      this.#length += taken.length;
      at += taken.length;
      if (this.#length === this.#size) yield this.#take();
    }
  }

  /** What is left; undefined where nothing is. */
  rest(): Uint8Array<ArrayBuffer> | undefined {
    return this.#length === 0 ? undefined : this.#take();
  }

  #take(): Uint8Array<ArrayBuffer> {
    const whole = this.#buffer.subarray(0, this.#length);
    this.#buffer = new Uint8Array(this.#size);
    this.#length = 0;
    return whole;
  }
}
