/** Work that nobody waits for, done a moment later: what somebody waits for needs the machine first. */
export class Afterwards {
  readonly #delayMs: number;
  #waiting: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(delayMs: number) {
    this.#delayMs = delayMs;
  }

  add(work: () => void): void {
    this.#waiting.push(work);
    this.#timer ??= setTimeout(() => this.now(), this.#delayMs);
  }

  /** Does at once what waits, in the order in which it came. */
  now(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const work of waiting) work();
  }
}
