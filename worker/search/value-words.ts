/** The words of a question that are values for a tool rather than what it does: quoted ones, and names inside a sentence. */
import { wordsOf } from './words.ts';

const QUOTED = /["“]([^"”]{1,80})["”]|(?<=\s)['‘]([^'’]{1,80})['’](?=[\s.,?!]|$)/gu;
/** A capital at the beginning of a sentence says nothing, and a word in capitals is as often an abbreviation. */
const NAMED = /(?<=[\p{L}\p{N},;:)]\s)\p{Lu}[\p{Ll}\p{M}]+/gu;
const SMALL = /\b\p{Ll}\p{L}*/gu;
/** Beyond it the question is written like a title. */
const MAX_NAMED_SHARE = 0.6;

export function valueWords(query: string): ReadonlySet<string> {
  const values = new Set<string>();
  for (const [, double, single] of query.matchAll(QUOTED)) {
    for (const word of wordsOf(double ?? single ?? '')) values.add(word);
  }
  const named = Array.from(query.matchAll(NAMED), ([name]) => wordsOf(name)).flat();
  if (named.length > wordsOf(query).length * MAX_NAMED_SHARE) return values;
  const small = new Set(query.match(SMALL) ?? []);
  for (const word of named) if (!small.has(word)) values.add(word);
  return values;
}
