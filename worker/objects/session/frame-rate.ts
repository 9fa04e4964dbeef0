/**
 * How many small frames a link may bring. Coalesced output needs a few hundred a second, and a host that was away a
 * while has some thousands to send again; large frames are bounded by their credit.
 */
const SMALL_BYTES = 4_096;
const FRAMES_PER_SECOND = 1_000;
const BURST_FRAMES = 20_000;

export class FrameRate {
  #left = BURST_FRAMES;
  #atMs = 0;

  allows(bytes: number, nowMs: number): boolean {
    if (bytes >= SMALL_BYTES) return true;
    const elapsedMs = Math.max(0, nowMs - this.#atMs);
    this.#left = Math.min(BURST_FRAMES, this.#left + (elapsedMs * FRAMES_PER_SECOND) / 1000);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
