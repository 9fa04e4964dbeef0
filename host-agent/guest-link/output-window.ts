/** Bytes on their way out of a program: counted against the credit given, which is given again as they are consumed. */

/** Credit of each stream. The guest blocks once this much was sent and not consumed. */
export const OUTPUT_WINDOW_BYTES = 1024 * 1024;

export class OutputWindow {
  readonly #grant: (bytes: number) => void;
  readonly #stepBytes: number;
  #credit: number;
  #consumed = 0;
  #isHeld = false;

  /** `credit`: what the guest has of it, where it is not the whole window. */
  constructor(
    grant: (bytes: number) => void,
    windowBytes: number = OUTPUT_WINDOW_BYTES,
    credit = windowBytes,
  ) {
    this.#grant = grant;
    this.#credit = credit;
    this.#stepBytes = windowBytes / 4;
    if (credit >= windowBytes) return;
    this.#credit = windowBytes;
    this.#grant(windowBytes - credit);
  }

  /** What the guest may yet send. */
  get credit(): number {
    return this.#credit;
  }

  /** False when the guest sends more than it was allowed. */
  receive(bytes: number): boolean {
    this.#credit -= bytes;
    return this.#credit >= 0;
  }

  /** Small amounts are saved up: a frame a line would cost more than the line. */
  consume(bytes: number): void {
    this.#consumed += bytes;
    if (this.#isHeld || this.#consumed < this.#stepBytes) return;
    this.#credit += this.#consumed;
    this.#grant(this.#consumed);
    this.#consumed = 0;
  }

  /** No credit is given until `goOn`: what the guest has of it is known meanwhile. */
  hold(): void {
    this.#isHeld = true;
  }

  goOn(): void {
    this.#isHeld = false;
    this.consume(0);
  }
}
