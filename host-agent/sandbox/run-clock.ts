/** The deadline of a call, counted only while it runs: on pause, and while a program waits for tools, it stands still. */
export class RunClock {
  readonly #onDeadline: () => void;
  #leftMs: number;
  #timer: NodeJS.Timeout | undefined;
  #startedAtMs = 0;
  #holds = 0;
  #heldSinceMs = 0;
  #formerPausesMs = 0;
  #endPause: (() => void) | undefined;
  #isStopped = false;

  constructor(timeoutMs: number, onDeadline: () => void) {
    this.#onDeadline = onDeadline;
    this.#leftMs = timeoutMs;
    this.#start();
  }

  /** How long it has stood still so far. */
  get pausedMs(): number {
    const current = this.#holds === 0 ? 0 : performance.now() - this.#heldSinceMs;
    return this.#formerPausesMs + current;
  }

  /** Of the timeout. */
  get leftMs(): number {
    return this.#timer === undefined ? this.#leftMs : Math.max(0, this.#leftMs - this.#runMs());
  }

  /** It stands still until the returned function is called, and until others that hold it let go too. */
  hold(): () => void {
    if (this.#isStopped) return () => undefined;
    if (this.#holds === 0) {
      this.#leftMs = this.leftMs;
      this.#clear();
      this.#heldSinceMs = performance.now();
    }
    this.#holds += 1;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      if (this.#holds === 1) this.#formerPausesMs = this.pausedMs;
      this.#holds -= 1;
      if (this.#holds === 0 && !this.#isStopped) this.#start();
    };
  }

  pause(): void {
    this.#endPause ??= this.hold();
  }

  resume(): void {
    this.#endPause?.();
    this.#endPause = undefined;
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
