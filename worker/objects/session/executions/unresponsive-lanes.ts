/** Lanes of the sandbox in which a call was given up: whatever still runs of it should not meet the next call. */

/** How long a host that did not answer in time has to stop what it was at. */
const STOP_GRACE_MS = 3_000;

export class UnresponsiveLanes {
  /** By lane, the number of the execution that was given up there. */
  readonly #held = new Map<string, { n: number; timer: ReturnType<typeof setTimeout> }>();
  readonly #freed: () => void;

  constructor(freed: () => void) {
    this.#freed = freed;
  }

  has(lane: string): boolean {
    return this.#held.has(lane);
  }

  hold(lane: string, n: number): void {
    clearTimeout(this.#held.get(lane)?.timer ?? null);
    this.#held.set(lane, { n, timer: setTimeout(() => this.#free(lane), STOP_GRACE_MS) });
  }

  /** The execution that was given up in the lane has ended after all. */
  endedLate(lane: string, n: number): void {
    if (this.#held.get(lane)?.n === n) this.#free(lane);
  }

  /** There is nothing any more that could still run. */
  freeAll(): void {
    for (const lane of this.#held.keys()) this.#free(lane);
  }

  #free(lane: string): void {
    clearTimeout(this.#held.get(lane)?.timer ?? null);
    this.#held.delete(lane);
    this.#freed();
  }
}
