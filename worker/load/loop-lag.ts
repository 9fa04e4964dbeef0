/**
 * How late this isolate is: by how much a timer comes after its time. Everything that waits for the isolate's thread waits
 * as long, whatever it is; calls that wait for a program or a host do not show here.
 */

const PROBE_MS = 10;
const PAUSE_MS = 15;
/** A probe whose request was cancelled never comes. */
const LOST_AFTER_MS = 2_000;

export class LoopLag {
  #lastMs = 0;
  #endedAtMs = Number.NEGATIVE_INFINITY;
  #dueAtMs: number | undefined;

  /** In milliseconds of `performance.now()`. What is late and has not come yet counts already. */
  at(nowMs: number): number {
    const overdueMs = this.#dueAtMs === undefined ? 0 : nowMs - this.#dueAtMs;
    return Math.max(this.#lastMs, overdueMs);
  }

  /** Called with every request: begins the next measurement where none is under way. */
  probe(nowMs: number, begin: (delayMs: number) => Promise<void>): void {
    if (this.#dueAtMs !== undefined && nowMs < this.#dueAtMs + LOST_AFTER_MS) return;
    if (nowMs < this.#endedAtMs + PAUSE_MS) return;
    const dueAtMs = nowMs + PROBE_MS;
    this.#dueAtMs = dueAtMs;
    void begin(PROBE_MS).then(() => {
      if (this.#dueAtMs !== dueAtMs) return;
      const endedAtMs = performance.now();
      this.#dueAtMs = undefined;
      this.#endedAtMs = endedAtMs;
      this.#lastMs = Math.max(0, endedAtMs - dueAtMs);
    });
  }
}
