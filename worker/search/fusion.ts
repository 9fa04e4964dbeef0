/** One ranking of several, by the places in each: scores of different kinds are no measure for each other. */
import type { Hit } from './ranking.ts';

/** How much the first places differ from those after them; the usual constant of reciprocal rank fusion. */
const DAMPING = 60;

/** Best first, ties in the order of the ids. The score is 1 for what is first in every ranking. */
export function fused(rankings: readonly (readonly Hit[])[], limit: number): Hit[] {
  const scores = new Map<string, number>();
  for (const ranking of rankings) {
    for (const [place, { id }] of ranking.entries()) {
      const share = (DAMPING + 1) / (DAMPING + 1 + place) / rankings.length;
      scores.set(id, (scores.get(id) ?? 0) + share);
    }
  }
  return Array.from(scores, ([id, score]) => ({ id, score }))
    .toSorted((a, b) => b.score - a.score || (a.id < b.id ? -1 : 1))
    .slice(0, limit);
}
