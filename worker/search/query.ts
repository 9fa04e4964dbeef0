/** What is looked up for a question: its words, what they may be written as, and what else says the same. */
import { stemOf } from './stem.ts';
import { synonymsOf } from './synonyms.ts';
import { wordsOf } from './words.ts';

export interface QueryTerm {
  /** The best of them counts. */
  alternatives: { term: string; share: number }[];
  weight: number;
}

export interface Vocabulary {
  isKnown: (term: string) => boolean;
  similar: (word: string) => { term: string; likeness: number }[];
}

/** A question of more words is a text: its first words say enough, and each word costs time. */
const MAX_WORDS = 64;
const SYNONYM_SHARE = 0.45;
const COMPOUND_SHARE = 0.8;
/** Below it words look alike by chance. */
const MIN_LIKENESS = 0.6;
const MAX_SIMILAR = 3;
const MIN_PART_CHARACTERS = 3;

export function queryTerms(query: string, vocabulary: Vocabulary): QueryTerm[] {
  const words = wordsOf(query).slice(0, MAX_WORDS);
  const counted = new Map<string, { word: string; count: number; next: string | undefined }>();
  for (const [at, word] of words.entries()) {
    const stem = stemOf(word);
    const known = counted.get(stem);
    if (known === undefined) counted.set(stem, { word, count: 1, next: words[at + 1] });
    else known.count += 1;
  }
  return [...counted].map(([stem, { word, count, next }]) => ({
    alternatives: alternativesOf(stem, word, next, vocabulary),
    weight: 1 + Math.log(count),
  }));
}

function alternativesOf(stem: string, word: string, next: string | undefined, vocabulary: Vocabulary) {
  const alternatives = [{ term: stem, share: 1 }];
  for (const synonym of synonymsOf(stem)) alternatives.push({ term: synonym, share: SYNONYM_SHARE });
  // `file system` is written `filesystem` too.
  if (next !== undefined) {
    const joined = stemOf(`${word}${next}`);
    if (vocabulary.isKnown(joined)) alternatives.push({ term: joined, share: COMPOUND_SHARE });
  }
  if (!vocabulary.isKnown(stem)) alternatives.push(...unknownWord(word, vocabulary));
  return alternatives;
}

/** A word that no tool has: two words written as one, or a misspelt one. */
function unknownWord(word: string, vocabulary: Vocabulary): { term: string; share: number }[] {
  for (let at = MIN_PART_CHARACTERS; at <= word.length - MIN_PART_CHARACTERS; at += 1) {
    const parts = [stemOf(word.slice(0, at)), stemOf(word.slice(at))];
    if (parts.every(vocabulary.isKnown)) return parts.map((term) => ({ term, share: COMPOUND_SHARE }));
  }
  return vocabulary
    .similar(stemOf(word))
    .filter(({ likeness }) => likeness >= MIN_LIKENESS)
    .toSorted((a, b) => b.likeness - a.likeness || (a.term < b.term ? -1 : 1))
    .slice(0, MAX_SIMILAR)
    .map(({ term, likeness }) => ({ term, share: likeness * COMPOUND_SHARE }));
}
