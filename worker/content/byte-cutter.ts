/** Takes bytes in whatever pieces they come and gives them in pieces of one size; only the last may be shorter. */
const FIRST_BYTES = 16 * 1024;

export class ByteCutter {
  readonly #size: number;
  /** Grows as bytes come: of what comes slowly there is little in memory. */
  #buffer: Uint8Array<ArrayBuffer>;
  #length = 0;

  constructor(size: number) {
    this.#size = size;
    this.#buffer = this.#fresh();
  }

  /** Bytes that are held. */
  get heldBytes(): number {
    return this.#length;
  }

  *push(bytes: Uint8Array): Generator<Uint8Array<ArrayBuffer>> {
    for (let at = 0; at < bytes.length; ) {
      const taken = bytes.subarray(at, at + this.#size - this.#length);
      this.#makeRoomFor(this.#length + taken.length);
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

  #makeRoomFor(length: number): void {
    if (length <= this.#buffer.length) return;
    const larger = new Uint8Array(Math.min(this.#size, Math.max(length, 2 * this.#buffer.length)));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }

  #take(): Uint8Array<ArrayBuffer> {
    const whole = this.#buffer.subarray(0, this.#length);
    this.#buffer = this.#fresh();
    this.#length = 0;
    return whole;
  }

  #fresh(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(Math.min(this.#size, FIRST_BYTES));
  }
}
