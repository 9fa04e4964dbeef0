/** A list in pages: a cursor names the last entry that was given, so it holds over changes of the list. */
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';

export interface Page<T> {
  entries: T[];
  nextCursor: string | undefined;
}

const PREFIX = 'after:';

/** Names are in ascending order. `undefined` for a cursor that is none. */
export function pageOf<T>(
  all: readonly T[],
  nameOf: (entry: T) => string,
  { cursor, size }: { cursor: string | undefined; size: number },
): Page<T> | undefined {
  const after = cursor === undefined ? undefined : nameIn(cursor);
  if (cursor !== undefined && after === undefined) return undefined;
  const rest = after === undefined ? all : all.filter((entry) => nameOf(entry) > after);
  const entries = rest.slice(0, size);
  const last = entries.at(-1);
  const hasMore = rest.length > entries.length && last !== undefined;
  return { entries, nextCursor: hasMore ? cursorAfter(nameOf(last)) : undefined };
}

function cursorAfter(name: string): string {
  return toBase64Url(utf8(`${PREFIX}${name}`));
}

function nameIn(cursor: string): string | undefined {
  const bytes = fromBase64Url(cursor);
  if (bytes === undefined) return undefined;
  const text = new TextDecoder().decode(bytes);
  return text.startsWith(PREFIX) ? text.slice(PREFIX.length) : undefined;
}
