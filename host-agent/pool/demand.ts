/** How many of a kind are asked for at once: what a pool of them should have ready. */

const BURST_MS = 10_000;
const MEMORY_MS = 300_000;
const MAX_ARRIVALS = 256;

export class Demand {
  #arrivalsMs: number[] = [];

  /** Times come in order. */
  record(atMs: number): void {
    this.#arrivalsMs.push(atMs);
    if (this.#arrivalsMs.length > MAX_ARRIVALS) this.#arrivalsMs.shift();
  }

  /** Arrivals in the busiest ten seconds of the last five minutes. */
  burst(nowMs: number): number {
    this.#arrivalsMs = this.#arrivalsMs.filter((atMs) => atMs > nowMs - MEMORY_MS);
    let most = 0;
    let first = 0;
    for (const [last, atMs] of this.#arrivalsMs.entries()) {
      while ((this.#arrivalsMs[first] ?? atMs) <= atMs - BURST_MS) first += 1;
      most = Math.max(most, last - first + 1);
    }
    return most;
  }
}
