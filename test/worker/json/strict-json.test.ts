import { describe, expect, test } from 'vitest';
import { lineAndColumn, parseStrictJson } from '../../../worker/json/strict-json.ts';
import { STUCK_MS } from '../../patience.ts';

const BOUNDS = { maxDepth: 4, maxValues: 20 };

describe('strict JSON', () => {
  test.each([
    '{}',
    '[]',
    ' [ 1 , -0.5e+3 , "a\\u00e9\\n\\"", true , false , null ] ',
    '{"a":{"b":[{"c":1}]}}',
    '"\u2028 and \u{1f600} as they are"',
    '9007199254740991',
    '1e300',
    '{"constructor":1,"toString":2}',
  ])('reads %s as JSON.parse does', (text) => {
    expect(parseStrictJson(text, BOUNDS)).toEqual({ ok: true, value: JSON.parse(text) });
  });

  test.each([
    '',
    ' ',
    '{',
    '[1,]',
    '{"a":1,}',
    '{"a" 1}',
    '{a:1}',
    '01',
    '+1',
    '1.',
    '.5',
    '-',
    '1e',
    'tru',
    'undefined',
    '"\u0001"',
    '"\\x"',
    '"\\u12"',
    '"open',
    "'a'",
    '1 2',
    '\ufeff1',
    '\u00a01',
    '[1 2]',
  ])('refuses %j, as JSON.parse does', (text) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(parseStrictJson(text, BOUNDS)).toMatchObject({ ok: false, kind: 'syntax' });
  });

  test.each([
    ['[[[[[]]]]]', 'bounds', '0.0.0.0'],
    ['{"a":{"b":[[[1]]]}}', 'bounds', 'a.b.0.0'],
    [`[${'1,'.repeat(20)}1]`, 'bounds', '19'],
    ['{"a":1,"\\u0061":2}', 'key', ''],
    ['[{"x":{"k":1,"k":1}}]', 'key', '0.x'],
    ['{"a":[{"__proto__":1}]}', 'key', 'a.0'],
    ['{"a":[0,9007199254740992]}', 'number', 'a.1'],
    ['{"a":-1e400}', 'number', 'a'],
    ['{"a":["\\ud83d\\ude00","\\ud800"]}', 'text', 'a.1'],
    ['{"a":{"\\udc00":1}}', 'text', 'a'],
  ])('refuses %s, which JSON.parse reads', (text, kind, path) => {
    expect(() => JSON.parse(text)).not.toThrow();
    expect(parseStrictJson(text, BOUNDS)).toMatchObject({ ok: false, kind, path });
  });

  test('reads megabytes of text in one string once', () => {
    const text = JSON.stringify({ code: 'line "quoted"\n'.repeat(280_000) });
    const startedMs = performance.now();
    expect(parseStrictJson(text, BOUNDS).ok).toBe(true);
    expect(performance.now() - startedMs).toBeLessThan(STUCK_MS);
  });

  test('counts lines and columns from one', () => {
    expect(lineAndColumn('', 0)).toEqual({ line: 1, column: 1 });
    expect(lineAndColumn('ab\ncd', 4)).toEqual({ line: 2, column: 2 });
    expect(lineAndColumn('ab\n', 3)).toEqual({ line: 2, column: 1 });
  });
});
