/** Strict mode makes a model send null for what it leaves out: such nulls are taken away before the arguments are checked. */
import type { JsonSchema } from '../tools/definition.ts';
import {
  alternativesOf,
  isSchema,
  MAX_SCHEMA_DEPTH,
  propertiesOf,
  requiredOf,
  resolved,
  typesOf,
} from './json-schema.ts';
import { objectSchema } from './object-schema.ts';

/** A copy of the arguments without nulls that stand for an absent value; a null that the schema takes stays. */
export function withoutAbsent(args: Record<string, unknown>, schema: JsonSchema): Record<string, unknown> {
  const object = objectSchema(schema);
  return strippedObject(args, object, { root: { ...schema, ...object }, depth: 0 });
}

interface Place {
  root: JsonSchema;
  depth: number;
}

/** Alternatives inside alternatives are looked through this deep; beyond, null is taken for a value. */
const MAX_ALTERNATIVES_DEPTH = 4;

function strippedObject(
  value: Record<string, unknown>,
  schema: JsonSchema,
  place: Place,
): Record<string, unknown> {
  const properties = propertiesOf(schema);
  const required = requiredOf(schema);
  const entries = Object.entries(value).flatMap(([name, entry]) => {
    const property = properties.get(name);
    if (property === undefined) return [[name, entry] as const];
    const isAbsent = entry === null && !required.has(name) && !takesNull(property, place.root);
    return isAbsent ? [] : [[name, stripped(entry, property, place)] as const];
  });
  return Object.fromEntries(entries);
}

function stripped(value: unknown, schema: JsonSchema, { root, depth }: Place): unknown {
  const inner = { root, depth: depth + 1 };
  const target = resolved(schema, root);
  if (target === undefined || inner.depth > MAX_SCHEMA_DEPTH) return value;
  if (Array.isArray(value)) {
    const { items } = target;
    return isSchema(items) ? value.map((item) => stripped(item, items, inner)) : value;
  }
  return isSchema(value) ? strippedObject({ ...value }, target, inner) : value;
}

function takesNull(schema: JsonSchema, root: JsonSchema, depth = 0): boolean {
  const target = resolved(schema, root);
  if (target === undefined || depth > MAX_ALTERNATIVES_DEPTH) return true;
  if (target.const === null) return true;
  if (Array.isArray(target.enum)) return target.enum.includes(null);
  if ('const' in target) return false;
  const types = typesOf(target);
  if (types.length > 0) return types.includes('null');
  const alternatives = alternativesOf(target);
  if (alternatives.length === 0) return true;
  return alternatives.some((alternative) => takesNull(alternative, root, depth + 1));
}
