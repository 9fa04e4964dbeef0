/** Integers in a server's list of tools that a double would round: noted beside the list, and put back in their places. */
import * as z from 'zod';
import { isSchema } from '../../formats/json-schema.ts';
import { MAX_INTEGER_DIGITS } from '../../json/exact-integers.ts';

/** Under which they are noted, in the `_meta` of the list. */
export const INTEGERS = 'sandgate/integers';

const MAX_DEPTH = 64;
const KeySchema = z.union([z.string(), z.int()]);
/** What is noted of one value: its digits where it is such an integer, else of each member in which there are any. */
const NotedSchema = z.union([
  z
    .string()
    .max(MAX_INTEGER_DIGITS)
    .regex(/^-?\d{16,}$/),
  z.array(z.tuple([KeySchema, z.unknown()])).min(1),
]);
type Noted = z.infer<typeof NotedSchema>;

/**
 * Undefined where there are none. Each name is noted once, however many integers are below it: what is noted is no longer
 * than the list.
 */
export function notedIntegers(value: unknown, depth = 0): Noted | undefined {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null || depth >= MAX_DEPTH) return undefined;
  const isList = Array.isArray(value);
  const members: [string | number, unknown][] = [];
  for (const [key, one] of Object.entries(value)) {
    const noted = notedIntegers(one, depth + 1);
    if (noted !== undefined) members.push([isList ? Number(key) : key, noted]);
  }
  return members.length === 0 ? undefined : members;
}

/** The page as the server wrote it. A note for a place where there is no number changes nothing. */
export function withExactIntegers<Page extends { tools: unknown[]; _meta?: unknown }>(page: Page): Page {
  const noted = isSchema(page._meta) ? page._meta[INTEGERS] : undefined;
  if (noted === undefined) return page;
  const tools = structuredClone(page.tools);
  putBack(tools, noted, 0);
  return { ...page, tools };
}

function putBack(at: object, noted: unknown, depth: number): void {
  const members = NotedSchema.safeParse(noted).data;
  if (!Array.isArray(members) || depth >= MAX_DEPTH) return;
  for (const [key, below] of members) {
    if (!Object.hasOwn(at, key) || (Array.isArray(at) && typeof key !== 'number')) continue;
    const value: unknown = Reflect.get(at, key);
    const digits = NotedSchema.safeParse(below).data;
    if (typeof value === 'number' && typeof digits === 'string') Reflect.set(at, key, BigInt(digits));
    else if (typeof value === 'object' && value !== null) putBack(value, below, depth + 1);
  }
}
