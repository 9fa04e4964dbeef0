/**
 * How long to wait before the next attempt to link: full jitter under a cap that grows. The first attempt after a loss waits a
 * moment too: an edge that goes loses all its links in the same one.
 */

const BASE_DELAY_MS = 250;
const MAX_DELAY_MS = 20_000;

export function reconnectDelayMs(failedAttempts: number, random: () => number): number {
  const capMs = Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** Math.min(failedAttempts, 16));
  return Math.floor(random() * capMs);
}
