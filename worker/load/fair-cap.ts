/**
 * How many each may have at most, so that all together have about `places`: who asks for less than that gets all of it, and
 * what it leaves is the others'. Pure.
 */
export function fairCap(demands: readonly number[], places: number): number {
  let left = places;
  const sorted = demands.toSorted((one, other) => one - other);
  for (const [index, demand] of sorted.entries()) {
    const each = left / (sorted.length - index);
    if (demand > each) return Math.max(1, each);
    left -= demand;
  }
  return places;
}
