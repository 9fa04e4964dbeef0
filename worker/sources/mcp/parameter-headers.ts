/**
 * Arguments that a server wants as headers of the call too (`x-mcp-header`). A tool whose declaration does not follow the
 * protocol is not called at all: what its server would read, and what stands between, could be two things.
 */
import { isSchema } from '../../formats/json-schema.ts';

const KEY = 'x-mcp-header';
/** RFC 9110 section 5.6.2. */
const TOKEN = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/;
const TYPES: readonly unknown[] = ['string', 'integer', 'boolean'];
const MAX_DEPTH = 64;

/** Why the tool cannot be called; undefined where nothing is wrong. */
export function parameterHeaderFault(inputSchema: Readonly<Record<string, unknown>>): string | undefined {
  return faultIn(inputSchema, { path: '', isParameter: false, seen: new Set(), depth: 0 });
}

interface Place {
  path: string;
  /** Whether it is reached through `properties` only, and so stands for one argument. */
  isParameter: boolean;
  seen: Set<string>;
  depth: number;
}

function faultIn(value: unknown, place: Place): string | undefined {
  if (place.depth > MAX_DEPTH) return undefined;
  if (Array.isArray(value))
    return firstFault(value.entries(), (item) => faultIn(item, below(place, '', false)));
  if (!isSchema(value)) return undefined;
  const own = KEY in value ? declarationFault(value, place) : undefined;
  if (own !== undefined) return own;
  return firstFault(Object.entries(value), (inner, key) => {
    if (key !== 'properties' || !isSchema(inner)) return faultIn(inner, below(place, key, false));
    const isReached = place.isParameter || place.depth === 0;
    return firstFault(Object.entries(inner), (one, name) => faultIn(one, below(place, name, isReached)));
  });
}

function below({ path, seen, depth }: Place, key: string, isParameter: boolean): Place {
  return { path: path === '' ? key : `${path}.${key}`, isParameter, seen, depth: depth + 1 };
}

function firstFault<Key>(
  entries: Iterable<readonly [Key, unknown]>,
  faultOf: (value: unknown, key: Key) => string | undefined,
): string | undefined {
  for (const [key, value] of entries) {
    const fault = faultOf(value, key);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function declarationFault(schema: Readonly<Record<string, unknown>>, place: Place): string | undefined {
  const { path, isParameter, seen } = place;
  const name = schema[KEY];
  const at = path === '' ? 'inputSchema' : path.slice(0, 128);
  if (!isParameter) return `${at}: expected ${KEY} on an argument only`;
  if (typeof name !== 'string' || !TOKEN.test(name)) return `${at}: expected ${KEY} to be a name of a header`;
  if (!TYPES.includes(schema.type)) return `${at}: expected ${KEY} on a string, an integer or a boolean only`;
  const lower = name.toLowerCase();
  if (seen.has(lower)) return `${at}: expected ${KEY} to be another header for each argument`;
  seen.add(lower);
  return undefined;
}
