/** How long something that fails again and again is left alone before the next try. */
const FIRST_MS = 1_000;
const MAX_MS = 300_000;
const MAX_DOUBLINGS = 16;

export class BackOff {
  #failures = 0;
  #notBeforeMs = 0;
  #reason = '';

  /** Why it is not tried now. */
  barAt(nowMs: number): string | undefined {
    if (nowMs >= this.#notBeforeMs) return undefined;
    const seconds = Math.ceil((this.#notBeforeMs - nowMs) / 1_000);
    return `${this.#reason}; it is started again in ${seconds} s`;
  }

  failed(reason: string, nowMs: number): void {
    const waitMs = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(this.#failures, MAX_DOUBLINGS));
    this.#failures += 1;
    this.#reason = reason;
    this.#notBeforeMs = nowMs + waitMs;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#notBeforeMs = 0;
  }
}
