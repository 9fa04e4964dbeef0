import { describe, expect, test } from 'vitest';
import { pageOf } from '../../../worker/mcp/pages.ts';

const NAMES = ['a', 'b', 'c', 'd', 'é'];
const identity = (name: string) => name;

function walk(names: readonly string[], size: number): string[][] {
  const pages: string[][] = [];
  let cursor: string | undefined;
  do {
    const page = pageOf(names, identity, { cursor, size });
    if (page === undefined) throw new Error('the cursor was not taken');
    pages.push(page.entries);
    cursor = page.nextCursor;
  } while (cursor !== undefined && pages.length < 100);
  return pages;
}

describe('a list in pages', () => {
  test('R14: has every entry once, and an end', () => {
    expect(walk(NAMES, 2)).toEqual([['a', 'b'], ['c', 'd'], ['é']]);
    expect(walk(NAMES, 5)).toEqual([NAMES]);
    expect(walk(NAMES, 100)).toEqual([NAMES]);
    expect(walk([], 2)).toEqual([[]]);
  });

  test('goes on at its place when entries come and go', () => {
    const first = pageOf(NAMES, identity, { cursor: undefined, size: 2 });
    const changed = ['a', 'aa', 'c', 'cc', 'é'];
    expect(pageOf(changed, identity, { cursor: first?.nextCursor, size: 2 })?.entries).toEqual(['c', 'cc']);
  });

  test.each(['', '0', '!', 'eyJv', 'YWZ0ZXI'])('takes no cursor that it did not give: %j', (cursor) => {
    expect(pageOf(NAMES, identity, { cursor, size: 2 })).toBeUndefined();
  });
});
