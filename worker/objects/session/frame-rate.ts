/**
 * How many frames a link may bring that cost more than they carry. Coalesced output needs a few hundred small ones a
 * second, and a host that was away has some thousands to send again; one that says nothing new is hardly ever honest.
 */
const SMALL_BYTES = 4_096;
const TOKENS_PER_SECOND = 1_000;
const BURST_TOKENS = 50_000;
const USELESS_TOKENS = 20;

export class FrameRate {
  #left = BURST_TOKENS;
  #atMs = 0;

  allows(bytes: number, nowMs: number): boolean {
    const elapsedMs = Math.max(0, nowMs - this.#atMs);
    this.#left = Math.min(BURST_TOKENS, this.#left + (elapsedMs * TOKENS_PER_SECOND) / 1000);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    if (bytes < SMALL_BYTES) this.#left -= 1;
    return true;
  }

  /** The frame that was allowed last said nothing new. */
  useless(): void {
    this.#left -= USELESS_TOKENS;
  }
}
