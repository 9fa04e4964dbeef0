/**
 * A second look at the best of a search, at what is too dear to ask of all tools: whether words stand side by side as they were
 * asked, and what the best have in common beside what was asked.
 */
import { byScore, type Hit } from './ranking.ts';

/** Of these the order is settled, and nobody else can come in. */
export const LOOKED_AT = 100;
/** What two words side by side count, against each of them alone. */
const PAIR_SHARE = 0.5;
/** What the best have in common counts, against words that were asked. */
const COMMON_SHARE = 0.2;
const COMMON_OF_BEST = 5;
const MAX_COMMON = 8;

/** The words of a tool's name and description in their order, as numbers; `GAP` stands between the two. */
export type Text = Uint32Array;
export const GAP = 0;

export interface Looked {
  textOf: (id: string) => Text;
  /** How much a word says; 0 where there is none of this number. */
  rarityOf: (word: number) => number;
  /** The words of each thing that is asked for, in their order. */
  clauses: readonly (readonly number[])[];
  /** What a word says that only one tool has. */
  highestRarity: number;
}

export function secondLook(hits: readonly Hit[], looked: Looked): Hit[] {
  const pairs = pairsOf(looked);
  const common = commonWords(hits.slice(0, COMMON_OF_BEST), looked);
  return hits
    .map(({ id, score }) => {
      const text = looked.textOf(id);
      return { id, score: score + gainOfPairs(text, pairs) + gainOfWords(text, common) };
    })
    .toSorted(byScore);
}

/** Two numbers of words as one. */
const keyOf = (first: number, second: number): number => first * 2 ** 24 + second;

function pairsOf({ clauses, rarityOf }: Looked): ReadonlyMap<number, number> {
  const pairs = new Map<number, number>();
  for (const words of clauses) {
    for (const [at, first] of words.entries()) {
      const second = words[at + 1] ?? GAP;
      if (first === GAP || second === GAP) continue;
      pairs.set(keyOf(first, second), (PAIR_SHARE * (rarityOf(first) + rarityOf(second))) / 2);
    }
  }
  return pairs;
}

/** Each pair once, however often it stands there. */
function gainOfPairs(text: Text, pairs: ReadonlyMap<number, number>): number {
  if (pairs.size === 0) return 0;
  const met = new Map<number, number>();
  for (let at = 0; at + 1 < text.length; at += 1) {
    const key = keyOf(text[at] ?? GAP, text[at + 1] ?? GAP);
    const gain = pairs.get(key);
    if (gain !== undefined) met.set(key, gain);
  }
  return sum([...met.values()]);
}

/** Words that several of the best have and nobody asked for, with what they count. */
function commonWords(best: readonly Hit[], { textOf, rarityOf, clauses, highestRarity }: Looked) {
  const asked = new Set([GAP, ...clauses.flat()]);
  const scores = new Map<number, number[]>();
  for (const { id, score } of best) {
    for (const word of new Set(textOf(id))) {
      if (!asked.has(word)) scores.set(word, [...(scores.get(word) ?? []), score]);
    }
  }
  const total = sum(best.map(({ score }) => score));
  const gains = [...scores]
    .filter(([, having]) => having.length > 1)
    .map(([word, having]): [number, number] => {
      return [word, (COMMON_SHARE * sum(having) * rarityOf(word) ** 2) / (total * highestRarity)];
    });
  return new Map(gains.toSorted((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, MAX_COMMON));
}

function gainOfWords(text: Text, gains: ReadonlyMap<number, number>): number {
  return sum(Array.from(new Set(text), (word) => gains.get(word) ?? 0));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
