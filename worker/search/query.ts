/** What is looked up for a question: its words, what they may be written as, and what else says the same. */
import { stemOf } from './stem.ts';
import { synonymsOf } from './synonyms.ts';
import { valueWords } from './value-words.ts';
import { wordsOf } from './words.ts';

export interface QueryTerm {
  stem: string;
  /** The best of them counts. Empty where a clause before had the word: then it is looked up already. */
  alternatives: { term: string; share: number }[];
  /** It tells tools apart that other words of its clause have found, and finds none itself. */
  isBeside: boolean;
}

export interface Vocabulary {
  isKnown: (term: string) => boolean;
  similar: (word: string) => { term: string; likeness: number }[];
}

/** A question of more words is a text: its first words say enough, and each word costs time. */
const MAX_WORDS = 64;
const MAX_QUERY_CHARACTERS = 4_096;
const SYNONYM_SHARE = 0.35;
const COMPOUND_SHARE = 0.8;
/** No more than tells tools apart that are alike in all else. */
const NUMBER_SHARE = 0.15;
/** Of a word that is rather a value, as names of places and people are, than what is asked for. */
const VALUE_SHARE = 0.6;
/** Below it words look alike by chance. */
const MIN_LIKENESS = 0.6;
const MAX_SIMILAR = 3;
const MIN_PART_CHARACTERS = 3;

/**
 * The words of each thing that is asked for, in their order: people ask for several in one text, and a tool that is right for
 * one of them need not fit the others.
 */
export function queryClauses(query: string, vocabulary: Vocabulary): QueryTerm[][] {
  const seen = new Set<string>();
  const values = valueWords(query.slice(0, MAX_QUERY_CHARACTERS));
  return clausesOf(query, vocabulary).map((words) => {
    const inClause = new Set<string>();
    return words.flatMap((word, at): QueryTerm[] => {
      const stem = stemOf(word);
      if (inClause.has(stem)) return [];
      inClause.add(stem);
      const isBeside = isNumber(word) && !isNumber(words[0] ?? '');
      if (seen.has(stem)) return [{ stem, alternatives: [], isBeside }];
      seen.add(stem);
      const alternatives = alternativesOf(stem, word, words[at + 1], vocabulary);
      const weight = values.has(word) ? VALUE_SHARE : 1;
      const weighed = alternatives.map(({ term, share }) => ({ term, share: share * weight }));
      return [{ stem, alternatives: weighed, isBeside }];
    });
  });
}

const CLAUSE_END = /(?<=[.!?;\n])\s+|,\s+(?:and|then|also)\s+|\b(?:and then|also|additionally)\b/iu;
/** One of fewer words says nothing by itself: it goes with the next. */
const MIN_CLAUSE_WORDS = 2;
const isNumber = (word: string): boolean => /^\p{N}+$/u.test(word);

function clausesOf(query: string, { isKnown }: Vocabulary): string[][] {
  const clauses: string[][] = [];
  let count = 0;
  for (const part of query.slice(0, MAX_QUERY_CHARACTERS).split(CLAUSE_END)) {
    const words = wordsOf(part).slice(0, MAX_WORDS - count);
    count += words.length;
    const last = clauses.at(-1);
    if (last !== undefined && last.length < MIN_CLAUSE_WORDS) last.push(...words);
    else if (words.length > 0) clauses.push(words);
  }
  // Numbers say how much or which one, not what is to be done: beside words, only those that tools have.
  const named = clauses.filter((words) => !words.every(isNumber));
  if (named.length === 0) return clauses;
  return named.map((words) => [
    ...words.filter((word) => !isNumber(word)),
    ...words.filter((word) => isNumber(word) && isKnown(stemOf(word))),
  ]);
}

function alternativesOf(stem: string, word: string, next: string | undefined, vocabulary: Vocabulary) {
  if (isNumber(word)) return [{ term: stem, share: NUMBER_SHARE }];
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
