/**
 * When a pool hears of a link that ended. Where the network of many hosts breaks, or the edge drops their links, they end in one
 * moment: a pool of many hosts hears of them one after the other, and of those that are back by then not at all. Pure.
 */

/** So many are no load for a pool, whatever else it has to do. */
const AT_ONCE = 32;
const TOLD_PER_S = 25;
/** Less than it takes for a host that says nothing to be suspected. */
const LONGEST_MS = 10_000;

export function suspicionDelayMs(hostsOfPool: number, random: () => number): number {
  if (hostsOfPool <= AT_ONCE) return 0;
  return Math.floor(random() * Math.min(LONGEST_MS, (hostsOfPool * 1_000) / TOLD_PER_S));
}
