import { describe, expect, test } from 'vitest';
import {
  exportedNames,
  FUNCTION_NAMES,
  GEMINI_NAMES,
  IDENTIFIERS,
  MCP_NAMES,
} from '../../../worker/formats/names.ts';

const RULES = [
  ['openai and anthropic', FUNCTION_NAMES, /^[a-zA-Z0-9_-]{1,64}$/],
  ['gemini', GEMINI_NAMES, /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/],
  ['mcp', MCP_NAMES, /^[a-zA-Z0-9_.-]{1,128}$/],
  ['identifiers', IDENTIFIERS, /^[A-Za-z_][A-Za-z0-9_]{0,63}$/],
] as const;

/** R49 */
const NAMES = [
  'calendar.list/v2',
  'calendar_list_v2',
  'calendar-list.v2',
  'a'.repeat(70),
  `${'a'.repeat(69)}b`,
  '名前',
  'x y',
].map((tool) => `géo srv.v2/${tool}`);
const ODD = ['', ' ', '__proto__', 'constructor', '7zip', '-x', 'class', 'def', 'a\u0000b', '🦊', 'é', 'e'];

describe.each(RULES)('names for %s', (_format, rule, legal) => {
  test('R49: are legal, all different, and the same whatever else there is and in any order', async () => {
    const all = [...NAMES, ...ODD, 'python'];
    const exported = await exportedNames(all, rule);
    for (const name of exported.values()) expect(name).toMatch(legal);
    expect(new Set(exported.values()).size).toBe(all.length);
    const reversed = await exportedNames(all.toReversed(), rule);
    for (const name of all) {
      expect(reversed.get(name)).toBe(exported.get(name));
      expect((await exportedNames([name], rule)).get(name)).toBe(exported.get(name));
    }
  });

  test('that are legal stay', async () => {
    const names = ['python', 'shell', 'file', 'a_b'];
    expect([...(await exportedNames(names, rule)).values()].toSorted()).toEqual(names.toSorted());
  });

  test('do not meet a legal name that was made to look like one of them', async () => {
    const first = (await exportedNames(['x y'], rule)).get('x y') ?? '';
    const exported = await exportedNames(['x y', first], rule);
    expect(exported.get(first)).toBe(first);
    expect(exported.get('x y')).not.toBe(first);
    expect(exported.get('x y')).toMatch(legal);
  });
});

test('a mapped name still says what it was', async () => {
  const exported = await exportedNames(['géo srv.v2/calendar.list', '名前'], FUNCTION_NAMES);
  expect(exported.get('géo srv.v2/calendar.list')).toMatch(/^geo_srv_v2_calendar_list_[0-9a-f]{10}$/);
  expect(exported.get('名前')).toMatch(/^tool_[0-9a-f]{10}$/);
});

test('words of a language are no names in it', async () => {
  for (const word of ['class', 'def', 'import', 'await', 'None', 'function']) {
    expect((await exportedNames([word], IDENTIFIERS)).get(word)).not.toBe(word);
  }
});
