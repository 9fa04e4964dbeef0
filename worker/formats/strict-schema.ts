/**
 * OpenAI's strict mode: every property required, nothing beside them, optional ones nullable, a subset of the
 * vocabulary. `undefined` where a schema cannot say what it says within these rules; such a tool is exported without.
 * Words that only narrow what is allowed are left out: a call is checked against the source.
 */
import type { JsonSchema } from '../tools/definition.ts';
import { alternativesOf, isSchema, propertiesOf, requiredOf, resolved, typesOf } from './json-schema.ts';

const MAX_DEPTH = 10;
const MAX_PROPERTIES = 5_000;
const MAX_ENUM_VALUES = 1_000;

const KEPT = [
  'title',
  'description',
  'enum',
  'const',
  'pattern',
  'multipleOf',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'minItems',
  'maxItems',
] as const;
const FORMATS = new Set([
  'date-time',
  'time',
  'date',
  'duration',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uuid',
]);
/** They change what is allowed in ways that leaving them out would hide. */
const UNSUPPORTED = [
  'allOf',
  'not',
  'if',
  'then',
  'else',
  'patternProperties',
  'prefixItems',
  'additionalItems',
  'unevaluatedProperties',
  'unevaluatedItems',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  '$dynamicRef',
  '$recursiveRef',
];

/** `schema` is an object at its top, without alternatives there. */
export function strictSchema(schema: JsonSchema): JsonSchema | undefined {
  const conversion = new Conversion(schema);
  try {
    const strict = conversion.object(schema, 0, 'root');
    const definitions = conversion.definitions();
    return Object.keys(definitions).length === 0 ? strict : { ...strict, $defs: definitions };
  } catch (error: unknown) {
    if (error instanceof NotStrict) return undefined;
    throw error;
  }
}

class NotStrict extends Error {}

class Conversion {
  readonly #root: JsonSchema;
  #properties = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  definitions(): Record<string, JsonSchema> {
    const all = ['$defs', 'definitions'].flatMap((keyword) => {
      const found = this.#root[keyword];
      return isSchema(found) ? Object.entries(found) : [];
    });
    return Object.fromEntries(all.map(([name, schema]) => [name, this.#schema(schema, 1)]));
  }

  object(schema: JsonSchema, depth: number, place: 'root' | 'inside'): JsonSchema {
    this.#check(schema, depth);
    const properties = propertiesOf(schema);
    const { additionalProperties } = schema;
    const closes = additionalProperties === undefined || additionalProperties === false;
    // An object without named properties is a map, unless it is the empty list of parameters.
    const isMap = place === 'inside' && additionalProperties === undefined && !('properties' in schema);
    if (!closes || isMap) throw new NotStrict();
    this.#properties += properties.size;
    if (this.#properties > MAX_PROPERTIES) throw new NotStrict();
    const required = requiredOf(schema);
    const converted = [...properties].map(([name, property]) => {
      const strict = this.#schema(property, depth + 1);
      return [name, required.has(name) ? strict : nullable(strict)];
    });
    return {
      ...this.#kept(schema),
      type: typesOf(schema).includes('null') ? ['object', 'null'] : 'object',
      properties: Object.fromEntries(converted),
      required: [...properties.keys()],
      additionalProperties: false,
    };
  }

  #schema(schema: unknown, depth: number): JsonSchema {
    if (!isSchema(schema)) throw new NotStrict();
    this.#check(schema, depth);
    if (typeof schema.$ref === 'string') return this.#reference(schema);
    const alternatives = alternativesOf(schema);
    if (alternatives.length > 0) {
      if (typesOf(schema).length > 0 && 'properties' in schema) throw new NotStrict();
      return {
        ...this.#kept(schema),
        anyOf: alternatives.map((alternative) => this.#schema(alternative, depth + 1)),
      };
    }
    const types = typesOf(schema);
    if (types.includes('object')) {
      if (types.some((type) => type !== 'object' && type !== 'null')) throw new NotStrict();
      return this.object(schema, depth, 'inside');
    }
    if (types.includes('array')) return this.#array(schema, types, depth);
    if (types.length === 0 && !('const' in schema) && !Array.isArray(schema.enum)) throw new NotStrict();
    return { ...this.#kept(schema), ...(types.length === 0 ? {} : { type: schema.type }) };
  }

  #array(schema: JsonSchema, types: readonly string[], depth: number): JsonSchema {
    if (types.some((type) => type !== 'array' && type !== 'null')) throw new NotStrict();
    return { ...this.#kept(schema), type: schema.type, items: this.#schema(schema.items, depth + 1) };
  }

  #reference(schema: JsonSchema): JsonSchema {
    if (resolved(schema, this.#root) === undefined) throw new NotStrict();
    return { $ref: String(schema.$ref).replace(/^#\/definitions\//, '#/$defs/') };
  }

  #check(schema: JsonSchema, depth: number): void {
    if (depth > MAX_DEPTH || UNSUPPORTED.some((keyword) => keyword in schema)) throw new NotStrict();
    if (Array.isArray(schema.enum) && schema.enum.length > MAX_ENUM_VALUES) throw new NotStrict();
  }

  #kept(schema: JsonSchema): JsonSchema {
    const kept = KEPT.filter((keyword) => keyword in schema).map((keyword) => [keyword, schema[keyword]]);
    const { format } = schema;
    if (typeof format === 'string' && FORMATS.has(format)) kept.push(['format', format]);
    return Object.fromEntries(kept);
  }
}

/** The same schema, that also takes null: how an optional property is said in strict mode. */
function nullable(schema: JsonSchema): JsonSchema {
  const types = typesOf(schema);
  const isSimple = types.length > 0 && !('const' in schema) && !('anyOf' in schema);
  if (isSimple) {
    const values = schema.enum;
    return {
      ...schema,
      type: types.includes('null') ? schema.type : [...types, 'null'],
      ...(Array.isArray(values) && !values.includes(null) ? { enum: [...values, null] } : {}),
    };
  }
  if (Array.isArray(schema.anyOf)) {
    const takesNull = schema.anyOf.some(
      (alternative) => isSchema(alternative) && typesOf(alternative).includes('null'),
    );
    return takesNull ? schema : { ...schema, anyOf: [...schema.anyOf, { type: 'null' }] };
  }
  const { description, title, ...rest } = schema;
  return {
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    anyOf: [rest, { type: 'null' }],
  };
}
