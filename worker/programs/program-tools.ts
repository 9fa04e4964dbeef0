/** The tools of a program as its kernel makes functions of them, and as a model reads them before it writes one. */
import type { CreateProgram, ProgramTool } from '../../shared/code-mode.ts';
import { propertiesOf, requiredOf, textOf } from '../formats/json-schema.ts';
import { isIdentifier } from '../formats/names.ts';
import { objectSchema } from '../formats/object-schema.ts';
import { pythonType } from '../formats/python.ts';
import { typescriptType } from '../formats/typescript.ts';
import type { ToolDefinition } from '../tools/definition.ts';
import { programPath } from './paths.ts';

type Language = CreateProgram['language'];

const MAX_DESCRIPTION_CHARACTERS = 4_000;
const MAX_TYPE_CHARACTERS = 4_000;
const MAX_DOCUMENTATION_CHARACTERS = 16_000;
const MAX_PARAMETERS = 256;

export async function programTool(tool: ToolDefinition, language: Language): Promise<ProgramTool> {
  const path = await programPath(tool.name);
  return language === 'python' ? pythonTool(tool, path) : javascriptTool(tool, path);
}

/** What a model reads: a line for each function, with what it is for. */
export function declarationsOf(tools: readonly ProgramTool[]): string {
  return tools.map(({ documentation }) => documentation).join('\n\n');
}

function pythonTool(tool: ToolDefinition, path: string[]): ProgramTool {
  const schema = objectSchema(tool.inputSchema);
  const properties = [...propertiesOf(schema)];
  const required = requiredOf(schema);
  const isByName =
    properties.length <= MAX_PARAMETERS &&
    properties.every(([name]) => isIdentifier(name) && name.length <= 128);
  const parameters = properties.map(([name, property]) => ({
    name,
    type: short(pythonType(property, schema), 'Any'),
    required: required.has(name),
  }));
  const returns = tool.outputSchema === undefined ? 'Any' : short(pythonType(tool.outputSchema), 'Any');
  const written = isByName ? pythonParameters(parameters) : 'arguments: dict[str, Any]';
  const notes = properties.flatMap(([name, { description }]) => {
    const text = oneLine(textOf(description) ?? '');
    return text === '' ? [] : [`    ${name}: ${text}`];
  });
  const documentation = [
    `tools.${path.join('.')}(${written}) -> ${returns}`,
    oneLine(tool.description),
    ...notes,
  ].join('\n');
  return {
    name: tool.name,
    path,
    documentation: documentation.slice(0, MAX_DOCUMENTATION_CHARACTERS).toWellFormed(),
    parameters: isByName ? parameters : null,
    returns,
  };
}

function pythonParameters(parameters: readonly { name: string; type: string; required: boolean }[]): string {
  if (parameters.length === 0) return '';
  const written = parameters.map(({ name, type, required }) => {
    if (required) return `${name}: ${type}`;
    return type === 'Any' || type.includes('None')
      ? `${name}: ${type} = None`
      : `${name}: ${type} | None = None`;
  });
  return ['*', ...written].join(', ');
}

function javascriptTool(tool: ToolDefinition, path: string[]): ProgramTool {
  const given = short(typescriptType(tool.inputSchema), 'Record<string, unknown>');
  const returns =
    tool.outputSchema === undefined ? 'unknown' : short(typescriptType(tool.outputSchema), 'unknown');
  const declaration = `tools.${path.join('.')}(args: ${given}): Promise<${returns}>`;
  const documentation = `/** ${oneLine(tool.description).replaceAll('*/', '* /')} */\n${declaration}`;
  return {
    name: tool.name,
    path,
    documentation: documentation.slice(0, MAX_DOCUMENTATION_CHARACTERS).toWellFormed(),
    parameters: null,
    returns,
  };
}

function short(type: string, otherwise: string): string {
  return type.length <= MAX_TYPE_CHARACTERS ? type : otherwise;
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, MAX_DESCRIPTION_CHARACTERS);
}
