/** Bytes on their way out of a program: counted against the credit given, which is given again as they are consumed. */

/** Credit of each stream. The guest blocks once this much was sent and not consumed. */
export const OUTPUT_WINDOW_BYTES = 1024 * 1024;
const GRANT_STEP_BYTES = OUTPUT_WINDOW_BYTES / 4;

export class OutputWindow {
  readonly #grant: (bytes: number) => void;
  #credit = OUTPUT_WINDOW_BYTES;
  #consumed = 0;

  constructor(grant: (bytes: number) => void) {
    this.#grant = grant;
  }

  /** False when the guest sends more than it was allowed. */
  receive(bytes: number): boolean {
    this.#credit -= bytes;
    return this.#credit >= 0;
  }

  /** Small amounts are saved up: a frame a line would cost more than the line. */
  consume(bytes: number): void {
    this.#consumed += bytes;
    if (this.#consumed < GRANT_STEP_BYTES) return;
    this.#credit += this.#consumed;
    this.#grant(this.#consumed);
    this.#consumed = 0;
  }
}
