/** What a server says of a call under way: the newest, not more often than anybody can read, and never backwards. */
import type { EdgeProgress, OnEdgeProgress } from '../../tools/edge-execution.ts';

const INTERVAL_MS = 100;
const MAX_MESSAGE_CHARACTERS = 2_000;

export class CallProgress {
  readonly #report: OnEdgeProgress;
  #last = Number.NEGATIVE_INFINITY;
  #newest: EdgeProgress | undefined;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(report: OnEdgeProgress) {
    this.#report = report;
  }

  took({ progress, total, message }: { progress: number; total?: number; message?: string }): void {
    if (progress <= this.#last) return;
    this.#last = progress;
    const said = message?.slice(0, MAX_MESSAGE_CHARACTERS) ?? null;
    this.#newest = { progress, total: total ?? null, message: said };
    if (this.#timer === null) this.#flush();
  }

  /** What is not reported by now is in the result. */
  close(): void {
    clearTimeout(this.#timer);
    this.#newest = undefined;
  }

  #flush(): void {
    this.#timer = null;
    if (this.#newest === undefined) return;
    this.#report(this.#newest);
    this.#newest = undefined;
    this.#timer = setTimeout(() => this.#flush(), INTERVAL_MS);
  }
}
