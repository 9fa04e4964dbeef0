/** The stem that forms of an English word share. It need not be a word: only the same for all of them. */

const VOWEL = /[aeiouy]/;

interface Ending {
  ending: string;
  becomes: string;
  /** Letters that must be left. */
  min: number;
}

const ending = (text: string, becomes = '', min = 3): Ending => ({ ending: text, becomes, min });

/** The first that fits is taken off. */
const PLURALS = [
  ending('sses', 'ss'),
  ending('ies', 'y', 2),
  ending('xes', 'x', 2),
  ending('ches', 'ch', 2),
  ending('shes', 'sh', 2),
];
const DERIVED = [
  ending('izations', 'ize'),
  ending('ization', 'ize'),
  ending('isation', 'ize'),
  ending('ifications', 'ify'),
  ending('ification', 'ify'),
  ending('ications', 'icate'),
  ending('ication', 'icate'),
  ending('ulations', 'ulate', 2),
  ending('ulation', 'ulate', 2),
  ending('ulator', 'ulate', 2),
  ending('ations', 'ate'),
  ending('ation', 'ate'),
  ending('ators', 'ate'),
  ending('ator', 'ate'),
  ending('itions', 'ite'),
  ending('fulness', ''),
  ending('iveness', 'ive'),
  ending('ements', 'e'),
  ending('ement', 'e'),
  ending('ments', ''),
  ending('ment', ''),
  ending('ically', 'ic'),
  ending('ional', 'ion'),
  ending('ness', ''),
  ending('ing', ''),
  ending('edly', ''),
  ending('ed', ''),
  ending('ers', ''),
  ending('er', '', 4),
  ending('ors', '', 4),
  ending('or', '', 4),
  ending('ly', ''),
  ending('al', '', 4),
];
const DOUBLED = /([bdfgmnprt])\1$/;

export function stemOf(word: string): string {
  if (word.length <= 3 || !/^[a-z]+$/.test(word)) return word;
  const single = withoutEnding(word, PLURALS) ?? (/[^su]s$/.test(word) ? word.slice(0, -1) : word);
  const base = withoutEnding(single, DERIVED) ?? single;
  return settled(base);
}

function withoutEnding(word: string, endings: readonly Ending[]): string | undefined {
  for (const { ending, becomes, min } of endings) {
    if (!word.endsWith(ending)) continue;
    const rest = word.slice(0, -ending.length);
    if (rest.length < min || !VOWEL.test(rest)) continue;
    return becomes === '' ? rest.replace(DOUBLED, '$1') : rest + becomes;
  }
  return undefined;
}

/** What the forms still differ in at their end: a silent e, a final y, ion after t or s. */
function settled(word: string): string {
  const base = word.replace(/([st])ions?$/, '$1');
  if (base.length > 4 && base.endsWith('e')) return base.slice(0, -1);
  return base.length > 3 && base.endsWith('y') ? `${base.slice(0, -1)}i` : base;
}
