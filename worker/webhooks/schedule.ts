/** When a delivery that failed is tried again. Pure. */

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** Waits after the first attempt, the second and so on: about a day in all, then it is given up. */
const WAITS_MS = [
  5 * SECOND_MS,
  30 * SECOND_MS,
  2 * MINUTE_MS,
  10 * MINUTE_MS,
  30 * MINUTE_MS,
  HOUR_MS,
  2 * HOUR_MS,
  4 * HOUR_MS,
  6 * HOUR_MS,
  10 * HOUR_MS,
];
export const MAX_ATTEMPTS = WAITS_MS.length + 1;
/** Waits are up to a fifth shorter or longer, so that what failed together does not come back together. */
const JITTER = 0.2;

/** An endpoint that failed so often in a row is only tried with one message at a time … */
export const FAILURES_TO_HOLD = 5;
/** … and not more often than this. */
export const PROBE_INTERVAL_MS = 30 * SECOND_MS;
/** Longer than all waits together: what has been here for so long is given up, however often it was tried. */
export const MAX_WAITING_MS = 30 * HOUR_MS;
/** What was not tried because another message had just failed there. */
export const HELD_BACK_MS = 5 * SECOND_MS;

/** Null when it was tried often enough. `random` is in [0, 1). */
export function waitAfter(attempts: number, random: number): number | null {
  const waitMs = WAITS_MS[attempts - 1];
  return waitMs === undefined ? null : Math.round(waitMs * (1 - JITTER + 2 * JITTER * random));
}
