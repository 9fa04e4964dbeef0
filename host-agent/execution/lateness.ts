/**
 * How long a grant was on its way, although the clocks of edge and host may differ: the fastest grant of the last
 * minutes is taken to have come at once. A host that was suspended must not start what the edge gave up long ago.
 */
const MEMORY_MS = 600_000;

export class Lateness {
  readonly #nowMs: () => number;
  #current = Number.POSITIVE_INFINITY;
  #former = Number.POSITIVE_INFINITY;
  #turnedAtMs: number;

  /** The clock is a monotonic one: steps of the host's wall clock do not count as lateness. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#turnedAtMs = nowMs();
  }

  /** Takes the time at which a grant was issued and says how late it is, to the second that grants are dated in. */
  observe(issuedAtS: number): number {
    const nowMs = this.#nowMs();
    if (nowMs - this.#turnedAtMs > MEMORY_MS) {
      this.#former = this.#current;
      this.#current = Number.POSITIVE_INFINITY;
      this.#turnedAtMs = nowMs;
    }
    const offsetMs = nowMs - issuedAtS * 1000;
    this.#current = Math.min(this.#current, offsetMs);
    return offsetMs - Math.min(this.#current, this.#former);
  }
}
