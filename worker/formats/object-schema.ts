/**
 * Model APIs take parameters as one object and refuse alternatives at its top. A schema that has them becomes one
 * object with the properties of all; what belongs to one alternative only says so in its description. The exported
 * schema may allow more than the source: a call is checked against the source.
 */
import type { JsonSchema } from '../tools/definition.ts';
import {
  alternativesOf,
  isSchema,
  propertiesOf,
  requiredOf,
  resolved,
  schemasIn,
  textOf,
  without,
} from './json-schema.ts';

/** Words that no model API takes at the top of parameters. */
const NOT_AT_TOP = [
  'oneOf',
  'anyOf',
  'allOf',
  'not',
  'enum',
  'const',
  'if',
  'then',
  'else',
  '$ref',
  '$schema',
];

export function objectSchema(source: JsonSchema): JsonSchema {
  const root = resolved(source, source) ?? {};
  const parts = [root, ...partsOf(root, source)];
  const base = merged(parts, 'all');
  const alternatives = resolvedAll(alternativesOf(root), source);
  const whole = alternatives.length === 0 ? base : withAlternatives(base, alternatives);
  const closed = [root, ...alternatives].some((part) => part.additionalProperties === false);
  return {
    ...without(root, [...NOT_AT_TOP, 'properties', 'required', 'additionalProperties']),
    ...definitionsOf(source),
    type: 'object',
    properties: Object.fromEntries(whole.properties),
    ...(whole.required.size === 0 ? {} : { required: [...whole.required] }),
    ...(closed ? { additionalProperties: false } : passedOn(root.additionalProperties)),
  };
}

interface Members {
  properties: Map<string, JsonSchema>;
  required: Set<string>;
}

function partsOf(root: JsonSchema, source: JsonSchema): JsonSchema[] {
  return resolvedAll(schemasIn(root.allOf), source);
}

/** Each once: a thousand references to one schema say no more than one of them. */
function resolvedAll(schemas: readonly JsonSchema[], source: JsonSchema): JsonSchema[] {
  const targets = new Set(schemas.map((schema) => resolved(schema, source)));
  return [...targets].filter((schema) => schema !== undefined);
}

/** Of an object that must be like all of them, or like one of them. */
function merged(parts: readonly JsonSchema[], rule: 'all' | 'one'): Members {
  const properties = new Map<string, JsonSchema[]>();
  for (const part of parts) {
    for (const [name, schema] of propertiesOf(part)) {
      const known = properties.get(name);
      if (known === undefined) properties.set(name, [schema]);
      else known.push(schema);
    }
  }
  const required = parts.map(requiredOf);
  const names = [...new Set(required.flatMap((set) => [...set]))];
  return {
    properties: new Map([...properties].map(([name, schemas]) => [name, joined(schemas)])),
    required: new Set(names.filter((name) => rule === 'all' || required.every((set) => set.has(name)))),
  };
}

/** One schema that allows what any of them does. */
function joined(schemas: readonly JsonSchema[]): JsonSchema {
  const distinct = [...new Map(schemas.map((schema) => [JSON.stringify(schema), schema])).values()];
  const [first] = distinct;
  if (first === undefined || distinct.length === 1) return first ?? {};
  const constants = distinct.map(constantsOf);
  if (constants.every((values) => values !== undefined)) {
    return { ...without(first, ['const', 'enum', 'default']), enum: [...new Set(constants.flat())] };
  }
  return { anyOf: distinct };
}

function constantsOf(schema: JsonSchema): unknown[] | undefined {
  if ('const' in schema) return [schema.const];
  return Array.isArray(schema.enum) ? schema.enum : undefined;
}

function withAlternatives(base: Members, alternatives: readonly JsonSchema[]): Members {
  const union = merged(alternatives, 'one');
  const each = alternatives.map((one) => ({ properties: propertiesOf(one), required: requiredOf(one) }));
  const selector = selectorOf(each);
  const properties = new Map(base.properties);
  for (const [name, schema] of union.properties) {
    if (properties.has(name)) continue;
    properties.set(
      name,
      selector === undefined ? schema : described(name, schema, { selector, alternatives: each }),
    );
  }
  return { properties, required: new Set([...base.required, ...union.required]) };
}

interface Alternative {
  properties: ReadonlyMap<string, JsonSchema>;
  required: ReadonlySet<string>;
}

/** The property whose constant tells the alternatives apart. */
function selectorOf(alternatives: readonly Alternative[]): string | undefined {
  const names = [...(alternatives[0]?.properties.keys() ?? [])];
  return names.find((name) => {
    const values = alternatives.map(({ properties }) => properties.get(name)?.const);
    return values.every((value) => typeof value === 'string') && new Set(values).size === values.length;
  });
}

/** For a property that not every alternative has: which do, and which need it. */
function described(
  name: string,
  schema: JsonSchema,
  { selector, alternatives }: { selector: string; alternatives: readonly Alternative[] },
): JsonSchema {
  const having = alternatives.filter(({ properties }) => properties.has(name));
  if (having.length === alternatives.length) return schema;
  const places = having.map(({ properties, required }) => {
    const value = String(properties.get(selector)?.const);
    return required.has(name) ? `${value} (required)` : value;
  });
  const note = `For ${selector} ${places.join(', ')}.`;
  const text = textOf(schema.description);
  return { ...schema, description: text === undefined ? note : `${text} ${note}` };
}

function definitionsOf(source: JsonSchema): JsonSchema {
  const kept = ['$defs', 'definitions'].filter((keyword) => isSchema(source[keyword]));
  return Object.fromEntries(kept.map((keyword) => [keyword, source[keyword]]));
}

function passedOn(additionalProperties: unknown): JsonSchema {
  return additionalProperties === undefined ? {} : { additionalProperties };
}
