/**
 * How long to wait before the next attempt to link: full jitter under a cap that grows and is `atLeastMs`. The first attempt after a loss waits a
 * moment too: an edge that goes loses all its links in the same one.
 */

const BASE_DELAY_MS = 250;
const MAX_DELAY_MS = 20_000;
/**
 * Of control links: each that comes back is told of to the pool of its host, and a pool has some two hundred hosts. Links
 * of sessions meet nobody, and calls wait for them.
 */
export const CONTROL_BASE_DELAY_MS = 3_000;

export function reconnectDelayMs(
  failedAttempts: number,
  random: () => number,
  atLeastMs = BASE_DELAY_MS,
): number {
  const capMs = Math.min(
    MAX_DELAY_MS,
    Math.max(atLeastMs, BASE_DELAY_MS * 2 ** Math.min(failedAttempts, 16)),
  );
  return Math.floor(random() * capMs);
}
