import { describe, expect, test } from 'vitest';
import { Budget } from '../../../worker/schema/budget.ts';
import { Pattern } from '../../../worker/schema/pattern/pattern.ts';
import { STUCK_MS } from '../../patience.ts';
import { generator, picker } from './generator.ts';

const budget = () => new Budget(5_000_000);

describe('a pattern', () => {
  test('finds what the engine finds, in ten thousand made ones', () => {
    const below = generator(11);
    const pick = picker(below);
    const pieces = [
      'a',
      'b',
      '.',
      '[ab]',
      '[^a]',
      '\\d',
      '\\w',
      '(a|b)',
      '(?:ab)',
      '^',
      '$',
      '\\b',
      '\\B',
      '(?=a)',
    ];
    const more = [
      '(?!b)',
      'é',
      '\\p{L}',
      'x{2}',
      '(ab){1,3}',
      '\\u0061',
      '\\.',
      '[\\w-.]',
      '|',
      '(a|)',
      '\\ud83d\\ude00',
    ];
    const repeats = ['', '', '', '*', '+', '?', '{2}', '{0,2}', '*?'];
    const letters = ['a', 'b', 'x', '1', 'é', '.', '-', ' ', '😀'];
    let compared = 0;
    for (let round = 0; round < 10_000; round += 1) {
      const source = Array.from(
        { length: 1 + below(5) },
        () => pick([...pieces, ...more]) + pick(repeats),
      ).join('');
      const engine = engineOf(source);
      if (engine === undefined) continue;
      const text = Array.from({ length: below(6) }, () => pick(letters)).join('');
      expect(new Pattern(source).isIn(text, budget()), `${source} in ${JSON.stringify(text)}`).toBe(
        engine.test(text),
      );
      compared += 1;
    }
    expect(compared).toBeGreaterThan(3_000);
  });

  test.each(['^(a+)+$', '^(a|aa)+$', '(a*)*b', '^(([a-z])+.)+[A-Z]([a-z])+$', '^(?:(?:a?){20})(?:a{20})$'])(
    'that would keep an engine busy for years, %s, is answered or given up at once',
    (source) => {
      const text = `${'a'.repeat(2_000)}!`;
      const begun = Date.now();
      try {
        expect(new Pattern(source).isIn(text, budget())).toBe(false);
      } catch (error: unknown) {
        expect(String(error)).toContain('too many steps');
      }
      expect(Date.now() - begun).toBeLessThan(STUCK_MS);
    },
  );

  test.each([
    ['(', 'a regular expression of ECMAScript'],
    ['(a)\\1', 'no back-references'],
    ['(?<n>a)\\k<n>', 'no back-references'],
    ['(?<=a)b', 'no look-behind'],
    ['a{99999999}', 'fewer repetitions'],
    ['((a{100}){100}){100}', 'fewer repetitions'],
    ['x'.repeat(5_000), 'at most 4096 characters'],
  ])('%.20s is refused with the reason', (source, reason) => {
    expect(() => new Pattern(source)).toThrow(reason);
  });
});

function engineOf(source: string): RegExp | undefined {
  for (const flags of ['u', '']) {
    try {
      return new RegExp(source, flags);
    } catch {
      // Perhaps in the other mode.
    }
  }
  return undefined;
}
