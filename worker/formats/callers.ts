/** Who may call a tool, in the words of one model API: both take a tool that says nothing for one that only the model calls. */

const DIRECT = 'direct';

export function callersIn(
  allowed: readonly string[] | undefined,
  words: { isKnown: (caller: string) => boolean; code: string },
): string[] {
  const named = allowed === undefined || allowed.length === 0 ? [DIRECT, words.code] : allowed;
  const known = named.filter((caller) => caller === DIRECT || words.isKnown(caller));
  const meansCode = named.some((caller) => caller !== DIRECT);
  const saysCode = known.some((caller) => caller !== DIRECT);
  return meansCode && !saysCode ? [...known, words.code] : known;
}
