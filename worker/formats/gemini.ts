/** Declarations for the Gemini API: one tool that holds all functions, parameters in its part of JSON Schema. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { isSchema, MAX_SCHEMA_DEPTH, schemasIn } from './json-schema.ts';
import { objectSchema } from './object-schema.ts';

export interface FunctionDeclaration {
  name: string;
  description: string;
  parametersJsonSchema: JsonSchema;
}

export function functionDeclaration(tool: ToolDefinition, name: string): FunctionDeclaration {
  return {
    name,
    description: tool.description,
    parametersJsonSchema: subset(objectSchema(tool.inputSchema), 0),
  };
}

const KEPT = [
  '$ref',
  'type',
  'format',
  'title',
  'description',
  'enum',
  'minItems',
  'maxItems',
  'minimum',
  'maximum',
  'required',
];
const HOLDS_SCHEMA = ['items', 'additionalProperties'];
const HOLDS_LIST = ['anyOf', 'oneOf', 'prefixItems'];
const HOLDS_MAP = ['properties', '$defs'];

/** The words that the API knows; the others only narrow what is allowed, and a call is checked against the source. */
function subset(schema: JsonSchema, depth: number): JsonSchema {
  if (depth > MAX_SCHEMA_DEPTH) return {};
  const inner = (value: unknown): unknown => (isSchema(value) ? subset(value, depth + 1) : value);
  const entries: [string, unknown][] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    if (KEPT.includes(keyword)) entries.push([keyword, keyword === '$ref' ? reference(value) : value]);
    else if (keyword === 'const') entries.push(['enum', [value]]);
    else if (HOLDS_SCHEMA.includes(keyword)) entries.push([keyword, inner(value)]);
    else if (HOLDS_LIST.includes(keyword)) entries.push([keyword, schemasIn(value).map(inner)]);
    else if (HOLDS_MAP.includes(keyword) || keyword === 'definitions') {
      const name = keyword === 'definitions' ? '$defs' : keyword;
      entries.push([name, mapped(value, inner)]);
    }
  }
  return Object.fromEntries(entries);
}

function reference(value: unknown): unknown {
  return typeof value === 'string' ? value.replace(/^#\/definitions\//, '#/$defs/') : value;
}

function mapped(value: unknown, change: (schema: unknown) => unknown): unknown {
  if (!isSchema(value)) return {};
  return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, change(schema)]));
}
