/** Reading JSON Schemas that others wrote: nothing is taken to be well-formed, and no recursion is without a bound. */
import type { JsonSchema } from '../tools/definition.ts';

/** Deeper schemas are cut there, where the format can say "anything", or are not exported in strict mode. */
export const MAX_SCHEMA_DEPTH = 32;

/** Schemas that are read for one tool at most: references may meet again and again. */
export const MAX_SCHEMA_STEPS = 10_000;

export function isSchema(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Schemas by property name. */
export function propertiesOf(schema: JsonSchema): ReadonlyMap<string, JsonSchema> {
  const { properties } = schema;
  if (!isSchema(properties)) return new Map();
  return new Map(Object.entries(properties).map(([name, value]) => [name, isSchema(value) ? value : {}]));
}

export function requiredOf(schema: JsonSchema): ReadonlySet<string> {
  const { required } = schema;
  return new Set(Array.isArray(required) ? required.filter((name) => typeof name === 'string') : []);
}

export function schemasIn(value: unknown): JsonSchema[] {
  return Array.isArray(value) ? value.filter(isSchema) : [];
}

/** The alternatives of a schema, whichever of the two words it uses; none for one without. */
export function alternativesOf(schema: JsonSchema): JsonSchema[] {
  return schemasIn(schema.anyOf ?? schema.oneOf);
}

export function typesOf(schema: JsonSchema): readonly string[] {
  const { type } = schema;
  if (typeof type === 'string') return [type];
  return Array.isArray(type) ? type.filter((entry) => typeof entry === 'string') : [];
}

/** The schema behind a chain of references into the definitions of the root; `undefined` where it does not lead to one. */
export function resolved(schema: JsonSchema, root: JsonSchema): JsonSchema | undefined {
  let current: unknown = schema;
  for (let step = 0; step < MAX_SCHEMA_DEPTH; step += 1) {
    if (!isSchema(current)) return undefined;
    const { $ref } = current;
    if (typeof $ref !== 'string') return current;
    current = $ref === '#' ? root : definitionOf($ref, root);
  }
  return undefined;
}

function definitionOf(reference: string, root: JsonSchema): unknown {
  const match = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference);
  const [, keyword, name] = match ?? [];
  if (keyword === undefined || name === undefined) return undefined;
  const definitions = root[keyword];
  const key = decodePointer(name);
  return isSchema(definitions) && Object.hasOwn(definitions, key) ? definitions[key] : undefined;
}

/** RFC 6901, with the percent-encoding of a URI fragment. */
function decodePointer(token: string): string {
  let text = token;
  try {
    text = decodeURIComponent(token);
  } catch {
    // Not an encoded text: taken as it is.
  }
  return text.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** A copy without some keywords. */
export function without(schema: JsonSchema, keywords: readonly string[]): JsonSchema {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !keywords.includes(keyword)));
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
