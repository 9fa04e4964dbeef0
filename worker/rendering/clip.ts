/** Texts within a budget of characters (UTF-16 units): the head and the tail stay, and the gap says how much it is. */

/** What stands in the gap. */
function gapText(leftOut: number): string {
  return `\n[… ${leftOut} characters left out …]\n`;
}

/** Room that a gap takes at most. */
const GAP_CHARACTERS = gapText(1_000_000_000).length;

export function clip(text: string, maxCharacters: number): string {
  if (text.length <= maxCharacters) return text;
  const kept = Math.max(0, maxCharacters - GAP_CHARACTERS);
  const head = headOf(text, Math.ceil(kept / 2));
  const tail = tailOf(text, Math.floor(kept / 2));
  return `${head}${gapText(text.length - head.length - tail.length)}${tail}`;
}

/** The smallest budget within which `clip` keeps its promise. */
export const MIN_CLIP_CHARACTERS = GAP_CHARACTERS;

export function headOf(text: string, characters: number): string {
  // Half of a surrogate pair is no character.
  return text.slice(0, characters).replace(/[\ud800-\udbff]$/, '');
}

export function tailOf(text: string, characters: number): string {
  return characters <= 0 ? '' : text.slice(-characters).replace(/^[\udc00-\udfff]/, '');
}

/** Divides a budget among texts: short ones get what they need, the rest share what is left. */
export function shares(lengths: readonly number[], budget: number): number[] {
  const given = lengths.map(() => 0);
  const byLength = lengths
    .map((length, index) => ({ length, index }))
    .toSorted((a, b) => a.length - b.length);
  let left = budget;
  for (const [position, { length, index }] of byLength.entries()) {
    const share = Math.min(length, Math.floor(left / (byLength.length - position)));
    given[index] = share;
    left -= share;
  }
  return given;
}
