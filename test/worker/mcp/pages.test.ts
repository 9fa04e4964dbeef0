import { describe, expect, test } from 'vitest';
import { cursorAfter, mergedPage, nameInCursor, type Page } from '../../../worker/mcp/pages.ts';

const AT_HAND = ['b', 'd', 'x'];
const identity = (name: string) => name;

/** What the catalogue answers for the names behind one. */
function catalogue(names: readonly string[], after: string | null, size: number) {
  const rest = names.filter((name) => after === null || name > after);
  const entries = rest.slice(0, size);
  return { entries, next: rest.length > size ? (entries.at(-1) ?? null) : null };
}

function walk(names: readonly string[], size: number): string[][] {
  const pages: string[][] = [];
  let after: string | null | undefined = null;
  do {
    const from: string | null = after;
    const atHand: string[] = AT_HAND.filter((name) => from === null || name > from);
    const page: Page<string> = mergedPage(atHand, catalogue(names, from, size), identity);
    pages.push(page.entries);
    after = page.nextCursor === undefined ? undefined : (nameInCursor(page.nextCursor) ?? null);
  } while (after !== undefined && pages.length < 100);
  return pages;
}

describe('a list in pages', () => {
  test('R14: has every entry once, in order, and an end', () => {
    expect(walk(['a', 'c', 'e', 'f', 'z'], 2)).toEqual([
      ['a', 'b', 'c'],
      ['d', 'e', 'f'],
      ['x', 'z'],
    ]);
    expect(walk(['a', 'c'], 5)).toEqual([['a', 'b', 'c', 'd', 'x']]);
    expect(walk([], 2)).toEqual([AT_HAND]);
  });

  test('keeps the name in its cursor, whatever it is', () => {
    expect(nameInCursor(cursorAfter('é/1'))).toBe('é/1');
  });

  test.each(['', '0', '!', 'eyJv', 'YWZ0ZXI'])('takes no cursor that it did not give: %j', (cursor) => {
    expect(nameInCursor(cursor)).toBeUndefined();
  });
});
