/** The deadline of a call, counted only while its sandbox runs: time on pause belongs to nobody's timeout. */
export class RunClock {
  readonly #onDeadline: () => void;
  #leftMs: number;
  #timer: NodeJS.Timeout | undefined;
  #startedAtMs = 0;
  #pausedAtMs: number | undefined;
  #formerPausesMs = 0;
  #isStopped = false;

  constructor(timeoutMs: number, onDeadline: () => void) {
    this.#onDeadline = onDeadline;
    this.#leftMs = timeoutMs;
    this.#start();
  }

  /** How long it has stood still so far. */
  get pausedMs(): number {
    const current = this.#pausedAtMs === undefined ? 0 : performance.now() - this.#pausedAtMs;
    return this.#formerPausesMs + current;
  }

  /** Of the timeout. */
  get leftMs(): number {
    return this.#timer === undefined ? this.#leftMs : Math.max(0, this.#leftMs - this.#runMs());
  }

  pause(): void {
    if (this.#isStopped || this.#pausedAtMs !== undefined) return;
    this.#leftMs = this.leftMs;
    this.#clear();
    this.#pausedAtMs = performance.now();
  }

  resume(): void {
    if (this.#pausedAtMs === undefined) return;
    this.#formerPausesMs = this.pausedMs;
    this.#pausedAtMs = undefined;
    if (!this.#isStopped) this.#start();
  }

  stop(): void {
    this.#leftMs = this.leftMs;
    this.#isStopped = true;
    this.#clear();
  }

  #start(): void {
    this.#startedAtMs = performance.now();
    this.#timer = setTimeout(this.#onDeadline, this.#leftMs);
  }

  #runMs(): number {
    return performance.now() - this.#startedAtMs;
  }

  #clear(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
