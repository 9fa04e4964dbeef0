/** Strict mode makes a model send null for what it leaves out: such nulls are taken away before the arguments are checked. */
import type { JsonSchema } from '../tools/definition.ts';
import { alternativesOf, isSchema, MAX_SCHEMA_DEPTH, resolved, typesOf } from './json-schema.ts';
import { objectSchema } from './object-schema.ts';

/** A copy of the arguments without nulls that stand for an absent value; a null that the schema takes stays. */
export function withoutAbsent(args: Record<string, unknown>, schema: JsonSchema): Record<string, unknown> {
  const object = objectSchema(schema);
  const place = { root: { ...schema, ...object }, depth: 0, steps: { left: MAX_STEPS } };
  return strippedObject(args, object, place);
}

interface Place {
  root: JsonSchema;
  depth: number;
  /** Of looking through alternatives: beyond them null is taken for a value. */
  steps: { left: number };
}

/** A step is a schema that is asked whether it takes null; a hundred thousand are a tenth of a second. */
const MAX_STEPS = 100_000;
/** Alternatives inside alternatives are looked through this deep; beyond, null is taken for a value. */
const MAX_ALTERNATIVES_DEPTH = 4;

function strippedObject(
  value: Record<string, unknown>,
  schema: JsonSchema,
  place: Place,
): Record<string, unknown> {
  // By name and not by lists of them: a small object may meet a large schema many times.
  const properties = isSchema(schema.properties) ? schema.properties : {};
  const { required } = schema;
  const isRequired = (name: string) => Array.isArray(required) && required.includes(name);
  const entries = Object.entries(value).flatMap(([name, entry]) => {
    const property = Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (!isSchema(property)) return [[name, entry] as const];
    const isAbsent = entry === null && !isRequired(name) && !takesNull(property, place);
    return isAbsent ? [] : [[name, stripped(entry, property, place)] as const];
  });
  return Object.fromEntries(entries);
}

function stripped(value: unknown, schema: JsonSchema, { root, depth, steps }: Place): unknown {
  const inner = { root, depth: depth + 1, steps };
  const target = resolved(schema, root);
  if (target === undefined || inner.depth > MAX_SCHEMA_DEPTH) return value;
  if (Array.isArray(value)) {
    const { items } = target;
    return isSchema(items) ? value.map((item) => stripped(item, items, inner)) : value;
  }
  return isSchema(value) ? strippedObject({ ...value }, target, inner) : value;
}

function takesNull(schema: JsonSchema, place: Pick<Place, 'root' | 'steps'>, depth = 0): boolean {
  place.steps.left -= 1;
  if (place.steps.left < 0) return true;
  const target = resolved(schema, place.root);
  if (target === undefined || depth > MAX_ALTERNATIVES_DEPTH) return true;
  if (target.const === null) return true;
  if (Array.isArray(target.enum)) return target.enum.includes(null);
  if ('const' in target) return false;
  const types = typesOf(target);
  if (types.length > 0) return types.includes('null');
  const alternatives = alternativesOf(target);
  if (alternatives.length === 0) return true;
  return alternatives.some((alternative) => takesNull(alternative, place, depth + 1));
}
