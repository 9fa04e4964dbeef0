/** Tools as Python function stubs, for models that write code. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import {
  alternativesOf,
  isSchema,
  MAX_SCHEMA_DEPTH,
  MAX_SCHEMA_STEPS,
  propertiesOf,
  requiredOf,
  resolved,
  textOf,
  typesOf,
} from './json-schema.ts';
import { isIdentifier } from './names.ts';
import { objectSchema } from './object-schema.ts';

const PREAMBLE = `from typing import Any, Literal, TypedDict


class ToolResult(TypedDict):
    """How a call ended and what it gave."""

    execution_id: str
    status: str
    exit_code: int | None
    stdout: str
    stderr: str
    value: str | None
    structured: Any
    error: dict[str, str] | None`;

export function pythonDeclarations(tools: readonly (readonly [ToolDefinition, string])[]): string {
  const stubs = tools.map(([tool, name]) => stubOf(tool, name));
  return `${[PREAMBLE, ...stubs].join('\n\n\n')}\n`;
}

function stubOf(tool: ToolDefinition, name: string): string {
  const schema = objectSchema(tool.inputSchema);
  const properties = [...propertiesOf(schema)];
  const parameters = properties.every(([property]) => isIdentifier(property))
    ? keywordParameters(schema, properties)
    : ['arguments: dict[str, Any]'];
  const notes = properties.flatMap(([property, { description }]) => {
    const text = oneLine(textOf(description) ?? '');
    return text === '' ? [] : [`        ${property}: ${text}`];
  });
  return [
    `def ${name}(${parameters.join(', ')}) -> ToolResult:`,
    `    """${oneLine(tool.description)}${notes.length === 0 ? '"""' : ''}`,
    ...(notes.length === 0 ? [] : ['', '    Args:', ...notes, '    """']),
    '    ...',
  ].join('\n');
}

function keywordParameters(
  schema: JsonSchema,
  properties: readonly (readonly [string, JsonSchema])[],
): string[] {
  if (properties.length === 0) return [];
  const required = requiredOf(schema);
  const types = new Types(schema);
  const parameters = properties.map(([name, property]) => {
    const type = types.of(property, 0);
    if (required.has(name)) return `${name}: ${type}`;
    return `${name}: ${type === 'Any' ? type : union([type, 'None'])} = None`;
  });
  return ['*', ...parameters];
}

/** What Python calls values of a schema; `root` holds its definitions. */
export function pythonType(schema: JsonSchema, root: JsonSchema = schema): string {
  return new Types(root).of(schema, 0);
}

class Types {
  readonly #root: JsonSchema;
  #steps = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  of(schema: JsonSchema, depth: number): string {
    this.#steps += 1;
    const target = resolved(schema, this.#root);
    // A definition inside itself ends here too.
    if (target === undefined || depth > MAX_SCHEMA_DEPTH || this.#steps > MAX_SCHEMA_STEPS) return 'Any';
    if ('const' in target) return literal([target.const]);
    if (Array.isArray(target.enum)) return literal(target.enum);
    const alternatives = alternativesOf(target);
    if (alternatives.length > 0)
      return union(alternatives.map((alternative) => this.of(alternative, depth + 1)));
    return union(typesOf(target).map((type) => this.#typed(type, target, depth)));
  }

  #typed(type: string, schema: JsonSchema, depth: number): string {
    const inner = (value: unknown) => (isSchema(value) ? this.of(value, depth + 1) : 'Any');
    switch (type) {
      case 'string':
        return 'str';
      case 'boolean':
        return 'bool';
      case 'integer':
        return 'int';
      case 'number':
        return 'float';
      case 'null':
        return 'None';
      case 'array':
        return `list[${inner(schema.items)}]`;
      case 'object':
        return `dict[str, ${inner(schema.additionalProperties)}]`;
      default:
        return 'Any';
    }
  }
}

function union(types: readonly string[]): string {
  const distinct = [...new Set(types.flatMap((type) => (type.includes('[') ? [type] : type.split(' | '))))];
  if (distinct.length === 0 || distinct.includes('Any')) return 'Any';
  return distinct.join(' | ');
}

function literal(values: readonly unknown[]): string {
  const written = values.map((value) => {
    if (typeof value === 'boolean') return value ? 'True' : 'False';
    return value === null ? 'None' : JSON.stringify(value);
  });
  const allowed = values.every(
    (value) => ['string', 'boolean'].includes(typeof value) || value === null || Number.isInteger(value),
  );
  return allowed && values.length > 0 ? `Literal[${written.join(', ')}]` : 'Any';
}

/** Text of a docstring: one line, and never the end of it. */
function oneLine(text: string): string {
  return text
    .replaceAll(/\s+/g, ' ')
    .replaceAll('\\', '\\\\')
    .replaceAll('"""', "'''")
    .replace(/"$/, "'")
    .trim();
}
