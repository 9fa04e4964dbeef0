/** How many frames a link may bring: far above what coalesced output needs, far below what would starve the object. */
const FRAMES_PER_SECOND = 5_000;
const BURST_FRAMES = 20_000;

export class FrameRate {
  #left = BURST_FRAMES;
  #atMs = 0;

  allows(nowMs: number): boolean {
    const elapsedMs = Math.max(0, nowMs - this.#atMs);
    this.#left = Math.min(BURST_FRAMES, this.#left + (elapsedMs * FRAMES_PER_SECOND) / 1000);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
