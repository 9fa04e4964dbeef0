/** Tools as TypeScript declarations, for models that write code. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import {
  alternativesOf,
  isSchema,
  MAX_SCHEMA_DEPTH,
  MAX_SCHEMA_STEPS,
  propertiesOf,
  requiredOf,
  resolved,
  schemasIn,
  textOf,
  typesOf,
} from './json-schema.ts';

const PREAMBLE = `/** How a call ended and what it gave. */
interface ToolResult {
  execution_id: string;
  status: string;
  exit_code: number | null;
  stdout: string;
  stderr: string;
  value: string | null;
  structured: unknown;
  error: { name: string; message: string; traceback: string } | null;
}`;

export function typescriptDeclarations(tools: readonly (readonly [ToolDefinition, string])[]): string {
  const declarations = tools.map(([tool, name]) => {
    const type = new Types(tool.inputSchema).of(tool.inputSchema, 0);
    return `${comment(tool.description, 0)}declare function ${name}(args: ${type}): Promise<ToolResult>;`;
  });
  return `${[PREAMBLE, ...declarations].join('\n\n')}\n`;
}

/** What TypeScript calls values of a schema. */
export function typescriptType(schema: JsonSchema): string {
  return new Types(schema).of(schema, 0);
}

class Types {
  readonly #root: JsonSchema;
  /** Definitions that are being written: one inside itself has no end in a declaration. */
  readonly #open = new Set<string>();
  #steps = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  of(schema: JsonSchema, depth: number): string {
    this.#steps += 1;
    if (depth > MAX_SCHEMA_DEPTH || this.#steps > MAX_SCHEMA_STEPS) return 'unknown';
    if (typeof schema.$ref === 'string') return this.#referred(schema, depth);
    if ('const' in schema) return JSON.stringify(schema.const);
    if (Array.isArray(schema.enum)) return union(schema.enum.map((value) => JSON.stringify(value)));
    const alternatives = alternativesOf(schema);
    if (alternatives.length > 0) return union(alternatives.map((alternative) => this.of(alternative, depth)));
    const parts = schemasIn(schema.allOf);
    if (parts.length > 0) return parts.map((part) => `(${this.of(part, depth)})`).join(' & ');
    const types = typesOf(schema);
    return types.length === 0 && 'properties' in schema
      ? this.#object(schema, depth)
      : union(types.map((type) => this.#typed(type, schema, depth)));
  }

  #referred(schema: JsonSchema, depth: number): string {
    const reference = String(schema.$ref);
    const target = resolved(schema, this.#root);
    if (target === undefined || this.#open.has(reference)) return 'unknown';
    this.#open.add(reference);
    const type = this.of(target, depth + 1);
    this.#open.delete(reference);
    return type;
  }

  #typed(type: string, schema: JsonSchema, depth: number): string {
    switch (type) {
      case 'string':
      case 'boolean':
      case 'null':
        return type;
      case 'integer':
      case 'number':
        return 'number';
      case 'array':
        return isSchema(schema.items) ? `Array<${this.of(schema.items, depth + 1)}>` : 'unknown[]';
      case 'object':
        return this.#object(schema, depth);
      default:
        return 'unknown';
    }
  }

  #object(schema: JsonSchema, depth: number): string {
    const properties = propertiesOf(schema);
    const { additionalProperties } = schema;
    const rest = isSchema(additionalProperties) ? this.of(additionalProperties, depth + 1) : 'unknown';
    if (properties.size === 0) {
      return additionalProperties === false ? 'Record<string, never>' : `Record<string, ${rest}>`;
    }
    const required = requiredOf(schema);
    const indent = '  '.repeat(depth + 1);
    const lines = [...properties].map(([name, property]) => {
      const mark = required.has(name) ? '' : '?';
      const note = comment(textOf(property.description) ?? '', depth + 1);
      return `${note}${indent}${keyOf(name)}${mark}: ${this.of(property, depth + 1)};`;
    });
    return `{\n${lines.join('\n')}\n${'  '.repeat(depth)}}`;
  }
}

function union(types: readonly string[]): string {
  return types.length === 0 ? 'unknown' : [...new Set(types)].join(' | ');
}

function keyOf(name: string): string {
  return /^[A-Za-z_$][A-Za-z0-9_$]*$/.test(name) ? name : JSON.stringify(name);
}

/** One line, and never the end of itself. */
function comment(text: string, depth: number): string {
  const line = text.replaceAll(/\s+/g, ' ').replaceAll('*/', '* /').trim();
  return line === '' ? '' : `${'  '.repeat(depth)}/** ${line} */\n`;
}
