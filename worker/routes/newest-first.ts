/** Lists that are each in their own order, the newest first, as one that keeps the order of each. */
import type { Execution } from '../../shared/execution.ts';

/** How many of each list are among the first `limit`, and these in their order. */
export function newestFirst<T extends { view: Pick<Execution, 'created_at'> }>(
  lists: readonly (readonly T[])[],
  limit: number,
): { entries: T[]; taken: number[] } {
  const taken = lists.map(() => 0);
  const entries: T[] = [];
  while (entries.length < limit) {
    const heads = lists.map((list, index) => list[taken[index] ?? 0]);
    const newest = heads.reduce<T | undefined>(
      (best, head) => (head !== undefined && (best === undefined || isNewer(head, best)) ? head : best),
      undefined,
    );
    if (newest === undefined) break;
    const index = heads.indexOf(newest);
    taken[index] = (taken[index] ?? 0) + 1;
    entries.push(newest);
  }
  return { entries, taken };
}

/** Both are in UTC, in one format. */
function isNewer<T extends { view: Pick<Execution, 'created_at'> }>(one: T, other: T): boolean {
  return one.view.created_at > other.view.created_at;
}
