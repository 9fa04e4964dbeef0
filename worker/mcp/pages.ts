/** A list in pages, from tools at hand and tools of the catalogue: a cursor names the last entry that was given. */
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';

export interface Page<T> {
  entries: T[];
  nextCursor: string | undefined;
}

const PREFIX = 'after:';

/**
 * Both in the order of their names, those after the cursor only. Where the catalogue has more, what stands behind its
 * last one waits for the next page.
 */
export function mergedPage<T>(
  atHand: readonly T[],
  catalogue: { entries: readonly T[]; next: string | null },
  nameOf: (entry: T) => string,
): Page<T> {
  const { next } = catalogue;
  const before = next === null ? atHand : atHand.filter((entry) => nameOf(entry) <= next);
  const entries = [...before, ...catalogue.entries].toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  return { entries, nextCursor: next === null ? undefined : cursorAfter(next) };
}

export function cursorAfter(name: string): string {
  return toBase64Url(utf8(`${PREFIX}${name}`));
}

/** `undefined` for a cursor that is none. */
export function nameInCursor(cursor: string): string | undefined {
  const bytes = fromBase64Url(cursor);
  if (bytes === undefined) return undefined;
  const text = new TextDecoder().decode(bytes);
  return text.startsWith(PREFIX) ? text.slice(PREFIX.length) : undefined;
}
