/** Integers in a server's list of tools that a double would round: noted beside the list, and put back in their places. */
import * as z from 'zod';
import { isSchema } from '../../formats/json-schema.ts';

/** Under which they are noted, in the `_meta` of the list. */
export const INTEGERS = 'sandgate/integers';

const MAX_DEPTH = 64;
const NotedSchema = z.array(
  z.tuple([z.array(z.union([z.string(), z.int()])), z.string().regex(/^-?\d{16,309}$/)]),
);
type Noted = z.infer<typeof NotedSchema>;
type Path = Noted[number][0];

export function notedIntegers(tools: unknown): Noted {
  const noted: Noted = [];
  note(tools, [], noted);
  return noted;
}

function note(value: unknown, path: Path, noted: Noted): void {
  if (typeof value === 'bigint') noted.push([path, value.toString()]);
  else if (typeof value === 'object' && value !== null && path.length < MAX_DEPTH) {
    const isList = Array.isArray(value);
    for (const [key, one] of Object.entries(value)) note(one, [...path, isList ? Number(key) : key], noted);
  }
}

/** The page as the server wrote it. A note for a place where there is no number changes nothing. */
export function withExactIntegers<Page extends { tools: unknown[]; _meta?: unknown }>(page: Page): Page {
  const noted = NotedSchema.safeParse(isSchema(page._meta) ? page._meta[INTEGERS] : undefined);
  if (!noted.success) return page;
  const tools = structuredClone(page.tools);
  for (const [path, digits] of noted.data) put(tools, path, BigInt(digits));
  return { ...page, tools };
}

function put(root: object, path: Path, integer: bigint): void {
  let at: object = root;
  for (const [depth, key] of path.entries()) {
    const value: unknown = Object.hasOwn(at, key) ? Reflect.get(at, key) : undefined;
    if (depth === path.length - 1 && typeof value === 'number') Reflect.set(at, key, integer);
    if (typeof value !== 'object' || value === null) return;
    at = value;
  }
}
