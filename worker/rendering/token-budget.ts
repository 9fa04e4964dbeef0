/** A text within a budget of tokens. No tokenizer is asked: what is counted is rather too much for each of the usual ones. */
import { MAX_MAX_CHARACTERS, MIN_MAX_CHARACTERS } from './execution-text.ts';

/** Of a character of ASCII: prose has fewer, digits and code about as many. */
const TOKENS_OF_ASCII = 1 / 3;
const TOKENS_OF_A_LETTER = 1.5;
/** Beyond the usual alphabets a character is several tokens, at the worst one for each of its bytes. */
const TOKENS_OF_A_RARE_ONE = 3;
const LAST_ASCII = 0x7f;
const LAST_OF_THE_BASIC_PLANE = 0xffff;
const MAX_TRIES = 8;

/** The least that a text of the fewest characters fits into, whatever they are. */
export const MIN_MAX_TOKENS = MIN_MAX_CHARACTERS * TOKENS_OF_A_LETTER;

export function estimatedTokens(text: string): number {
  let tokens = 0;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (code <= LAST_ASCII) tokens += TOKENS_OF_ASCII;
    else tokens += code <= LAST_OF_THE_BASIC_PLANE ? TOKENS_OF_A_LETTER : TOKENS_OF_A_RARE_ONE;
  }
  return Math.ceil(tokens);
}

/** `textOf` gives the text within so many characters. */
export function withinTokens(maxTokens: number, textOf: (maxCharacters: number) => string): string {
  let characters = Math.min(MAX_MAX_CHARACTERS, Math.floor(maxTokens / TOKENS_OF_ASCII));
  for (let tries = 0; tries < MAX_TRIES && characters > MIN_MAX_CHARACTERS; tries += 1) {
    const text = textOf(characters);
    const tokens = estimatedTokens(text);
    if (tokens <= maxTokens) return text;
    // What is cut may be another mixture than what stays.
    const share = (Math.min(characters, text.length) * maxTokens) / tokens;
    characters = Math.max(MIN_MAX_CHARACTERS, Math.min(characters - 1, Math.floor(share)));
  }
  return textOf(MIN_MAX_CHARACTERS);
}
