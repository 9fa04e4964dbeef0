/** How many frames a link may bring that cost more than they carry. */
const USELESS_TOKENS = 20;

export interface FrameRateLimits {
  /** Frames below this size cost one token; those above pay by their bytes elsewhere. */
  smallBytes: number;
  tokensPerSecond: number;
  burstTokens: number;
}

/**
 * Coalesced output needs a few hundred small frames a second, and a host that was away has some thousands to send again;
 * one that says nothing new is hardly ever honest.
 */
export const SESSION_LINK_RATE: FrameRateLimits = {
  smallBytes: 4_096,
  tokensPerSecond: 1_000,
  burstTokens: 50_000,
};

/** A load every few seconds, and an answer for each of some thousand sandboxes that end at once. Every frame counts. */
export const CONTROL_LINK_RATE: FrameRateLimits = {
  smallBytes: Number.POSITIVE_INFINITY,
  tokensPerSecond: 50,
  burstTokens: 5_000,
};

export class FrameRate {
  readonly #limits: FrameRateLimits;
  #left: number;
  #atMs = 0;

  constructor(limits: FrameRateLimits) {
    this.#limits = limits;
    this.#left = limits.burstTokens;
  }

  allows(bytes: number, nowMs: number): boolean {
    const { smallBytes, tokensPerSecond, burstTokens } = this.#limits;
    const elapsedMs = Math.max(0, nowMs - this.#atMs);
    this.#left = Math.min(burstTokens, this.#left + (elapsedMs * tokensPerSecond) / 1000);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    if (bytes < smallBytes) this.#left -= 1;
    return true;
  }

  /** The frame that was allowed last said nothing new. */
  useless(): void {
    this.#left -= USELESS_TOKENS;
  }
}
