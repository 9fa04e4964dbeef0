/** How long to wait before the next attempt to link: at once after a loss, then full jitter under a growing cap. */

const BASE_DELAY_MS = 250;
const MAX_DELAY_MS = 20_000;

export function reconnectDelayMs(failedAttempts: number, random: () => number): number {
  if (failedAttempts === 0) return 0;
  const capMs = Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** Math.min(failedAttempts, 16));
  return Math.floor(random() * capMs);
}
