/** From text and identifiers to the words that an index knows. */

/** Words that say nothing about which tool is meant. */
const STOP_WORDS = new Set(
  (
    'a an the this that these those it its is are was were be been being am do does did done have has had having ' +
    'i me my mine you your yours he him his she her hers we us our ours they them their theirs and or but if then ' +
    'else so of to in on at by for from with without into onto about as than via per within can could may might ' +
    'will would shall should must not no nor what which who whom whose when where why how please want need needs ' +
    'like let lets help tell know there here some any all each every both such only also just too very more most ' +
    'im id ive us using use used given based etc e g ie'
  ).split(' '),
);

/** Longer texts are cut: what a tool does is said at its beginning. */
const MAX_TEXT_CHARACTERS = 4_096;
const MAX_WORD_CHARACTERS = 48;
const WORD = /[\p{L}\p{M}]+|\p{N}+/gu;
/** Scripts that do not put spaces between words: two characters stand for a word. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Hangul}]/u;

/** Words in their order, stop words left out: `getUserHTTPUrl` and `get_user http-url` have the same four. */
export function wordsOf(text: string): string[] {
  const spaced = text
    .slice(0, MAX_TEXT_CHARACTERS)
    .replaceAll(/(\p{Ll}|\p{N})(\p{Lu})/gu, '$1 $2')
    .replaceAll(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .replaceAll(/(\p{L})['’](s|t|m|d|re|ve|ll)\b/giu, '$1')
    .normalize('NFKD')
    .replaceAll(/\p{M}/gu, '')
    .toLowerCase();
  return (spaced.match(WORD) ?? []).flatMap(partsOf).filter((word) => !STOP_WORDS.has(word));
}

function partsOf(word: string): string[] {
  if (!UNSPACED.test(word)) return [word.slice(0, MAX_WORD_CHARACTERS)];
  const characters = Array.from(word.slice(0, MAX_WORD_CHARACTERS));
  if (characters.length === 1) return characters;
  return characters.slice(1).map((character, index) => `${characters[index] ?? ''}${character}`);
}

/** Parts of a word from which a misspelt one is still known; its beginning and its end count. */
export function trigramsOf(word: string): string[] {
  const padded = `^${word}$`;
  return Array.from({ length: Math.max(0, padded.length - 2) }, (_, at) => padded.slice(at, at + 3));
}
