/** A schema that others wrote, made ready to check values: its faults are found now, not when it is first used. */
import type { Violation } from '../../shared/errors.ts';
import { SchemaLimit } from './budget.ts';
import { Documents, SchemaFault } from './documents.ts';
import type { Dialect } from './evaluation.ts';
import { isObject } from './evaluation.ts';
import { Evaluator } from './evaluator.ts';
import DRAFT_2020_12 from './meta-schemas/2020-12.json' with { type: 'json' };
import DRAFT_07 from './meta-schemas/draft-07.json' with { type: 'json' };
import { Pattern } from './pattern/pattern.ts';
import { PatternFault } from './pattern/syntax.ts';

/** About a quarter of a second at worst. */
const MAX_STEPS = 5_000_000;
/** Of all patterns of one schema: they are kept as long as it is checked. */
const MAX_PATTERN_INSTRUCTIONS = 100_000;
/** Base of a schema that does not say its own. */
const NAMELESS = 'schema:///';

const DIALECTS: Readonly<Record<string, Dialect['name']>> = {
  'https://json-schema.org/draft/2020-12/schema': '2020-12',
  'http://json-schema.org/draft-07/schema': 'draft-07',
  // What it has, draft-07 has too, with the same meaning.
  'http://json-schema.org/draft-06/schema': 'draft-07',
};
export const DEFAULT_DIALECT = 'https://json-schema.org/draft/2020-12/schema';
const VALIDATION_VOCABULARY = 'https://json-schema.org/draft/2020-12/vocab/validation';

const META_SCHEMAS: ReadonlyMap<string, unknown> = new Map(
  [...DRAFT_2020_12, DRAFT_07].map((schema) => [schema.$id.replace(/#$/, ''), schema]),
);

export type Check = { ok: true; violations: Violation[] } | { ok: false; reason: string };

export interface CompiledSchema {
  /** Whether the value fits; `ok: false` where the schema cannot be followed to an end. */
  check(value: unknown, path: string): Check;
}

export type Compilation =
  | { ok: true; schema: CompiledSchema }
  | { ok: false; expected: string; pointer: string };

export interface CompileOptions {
  /** Documents that references may lead to, beside the meta-schemas. Nothing is ever fetched. */
  documents?: ReadonlyMap<string, unknown>;
  /** For a schema that does not name one. */
  dialect?: string;
}

export function compileSchema(schema: unknown, options: CompileOptions = {}): Compilation {
  try {
    return { ok: true, schema: compiled(schema, options) };
  } catch (error: unknown) {
    if (error instanceof SchemaFault) return { ok: false, expected: error.message, pointer: error.pointer };
    throw error;
  }
}

function compiled(
  schema: unknown,
  { documents: given, dialect = DEFAULT_DIALECT }: CompileOptions,
): CompiledSchema {
  if (typeof schema !== 'boolean' && !isObject(schema)) throw new SchemaFault('an object or a boolean', '');
  const load = (uri: string) => given?.get(uri) ?? META_SCHEMAS.get(uri);
  const dialectOf = (uri: string, pointer: string) =>
    dialectNamed(uri === '' ? dialect : uri, { load, pointer });
  const named = isObject(schema) && typeof schema.$schema === 'string' ? schema.$schema : dialect;
  const start = { base: NAMELESS, dialect: dialectOf(named, '/$schema') };
  const documents = new Documents({ dialectOf, load });
  documents.add(schema, start);
  const patterns = new Map<string, Pattern>();
  let instructions = 0;
  for (const [source, pointer] of documents.patterns) {
    const pattern = patternAt(source, pointer);
    instructions += pattern.size;
    if (instructions > MAX_PATTERN_INSTRUCTIONS) {
      throw new SchemaFault('fewer repetitions in all patterns together', pointer);
    }
    patterns.set(source, pattern);
  }
  for (const { reference, base, pointer } of documents.references) {
    if (documents.resolve(reference, base) === undefined) {
      throw new SchemaFault(`a reference within the schema, not ${reference.slice(0, 128)}`, pointer);
    }
  }
  const patternOf = (source: string) => {
    const pattern = patterns.get(source) ?? patternAt(source, '');
    patterns.set(source, pattern);
    return pattern;
  };
  return {
    check: (value, path) => {
      try {
        const evaluator = new Evaluator(documents, patternOf, MAX_STEPS);
        return { ok: true, violations: evaluator.run(schema, value, { ...start, path }) };
      } catch (error: unknown) {
        if (error instanceof SchemaLimit || error instanceof SchemaFault) {
          return { ok: false, reason: error.message };
        }
        throw error;
      }
    },
  };
}

function patternAt(source: string, pointer: string): Pattern {
  try {
    return new Pattern(source);
  } catch (error: unknown) {
    if (error instanceof PatternFault) throw new SchemaFault(`a pattern with ${error.message}`, pointer);
    throw error;
  }
}

function dialectNamed(
  uri: string,
  { load, pointer }: { load: (uri: string) => unknown; pointer: string },
): Dialect {
  const id = uri.replace(/#$/, '');
  const name = DIALECTS[id];
  if (name !== undefined) return { name, asserts: true };
  // A dialect of its own: its meta-schema says which of the words of 2020-12 it has.
  const metaSchema = load(id);
  if (isObject(metaSchema) && isObject(metaSchema.$vocabulary)) {
    return { name: '2020-12', asserts: Object.hasOwn(metaSchema.$vocabulary, VALIDATION_VOCABULARY) };
  }
  throw new SchemaFault(`the dialect 2020-12 or draft-07, not ${JSON.stringify(uri.slice(0, 128))}`, pointer);
}

let metaSchemas: Map<Dialect['name'], CompiledSchema> | undefined;

/** Where a schema is not one, by the meta-schema of its dialect. */
export function schemaViolations(schema: unknown, path: string): Check {
  const uri = isObject(schema) && typeof schema.$schema === 'string' ? schema.$schema : DEFAULT_DIALECT;
  const name = DIALECTS[uri.replace(/#$/, '')] ?? '2020-12';
  metaSchemas ??= new Map();
  const known = metaSchemas.get(name) ?? compiled(META_SCHEMAS.get(idOf(name)), {});
  metaSchemas.set(name, known);
  return known.check(schema, path);
}

function idOf(name: Dialect['name']): string {
  return name === '2020-12' ? DEFAULT_DIALECT : 'http://json-schema.org/draft-07/schema';
}
