/** The tool `code`, by which a model or an MCP client runs a program: what it says of itself, and what a call of it asks for. */
import * as z from 'zod';
import {
  CODE_TOOL_NAME,
  type CodeArguments,
  CodeArgumentsSchema,
  type CreateProgram,
  KERNELS,
  ProgramLanguageSchema,
  type ProgramTool,
} from '../../shared/code-mode.ts';
import { propertiesOf, without } from '../formats/json-schema.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { invalid } from '../middleware/body.ts';
import { callableTools } from '../tools/catalogue.ts';
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import type { ResolveContext } from '../tools/performance.ts';
import { programTools } from './permitted-tools.ts';
import { declarationsOf } from './program-tools.ts';

type Language = CreateProgram['language'];

/** Of the functions in the tool's own description: a model reads all of them before it writes a word. */
const MAX_DECLARATIONS_CHARACTERS = 16_000;
const CALLS: Record<Language, string> = {
  python: 'tools.weather.get(city="Oslo"), or await tools.weather.get.aio(city="Oslo") to gather several',
  javascript: 'await tools.weather.get({city: "Oslo"})',
};

export const CODE_TOOL: ToolDefinition = {
  name: CODE_TOOL_NAME,
  title: 'Run a program that calls tools',
  description:
    'Run a program in the kernel of the session, in which tools are functions: call many, in loops and in parallel, and ' +
    'give back only what matters. What it prints and its last expression are the result.',
  category: 'code',
  inputSchema: without(z.toJSONSchema(CodeArgumentsSchema, { io: 'input' }), ['$schema']),
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  // A program finds no function that runs a program.
  allowedCallers: ['direct'],
};

/** Those of whose kernels this caller has the scope. */
export function programLanguages(principal: TenantPrincipal): Language[] {
  const names = new Set<string>(callableTools(principal).map(({ name }) => name));
  return ProgramLanguageSchema.options.filter((language) => names.has(KERNELS[language]));
}

/**
 * The tool as this caller may use it, with the functions that its programs find; undefined for who may run none. They
 * stand in the description of the tool or, where a format keeps that short, in that of its argument `code`.
 */
export async function codeTool(
  context: ResolveContext,
  { base = CODE_TOOL, functions }: { base?: ToolDefinition; functions: 'description' | 'argument' },
): Promise<ToolDefinition | undefined> {
  const languages = programLanguages(context.principal);
  const [language] = languages;
  if (language === undefined) return undefined;
  const calls = languages.map((one) => CALLS[one]).join('; in JavaScript ');
  const declared = bounded(await programTools(context, { language }));
  const text =
    declared === '' ? 'There are no functions yet.' : `Call them as ${calls}.\nThe functions:\n\n${declared}`;
  const inDescription = functions === 'description';
  return {
    ...base,
    description: inDescription
      ? `${base.description} ${text}`
      : `${base.description} The functions are in the description of its argument \`code\`.`,
    inputSchema: withProperties(base.inputSchema, {
      language: { enum: languages },
      ...(inDescription ? {} : { code: { description: `Source. ${text}` } }),
    }),
  };
}

/** As many as have room; the others are said to be there. */
function bounded(tools: readonly ProgramTool[]): string {
  let count = 0;
  let characters = 0;
  for (const { documentation } of tools) {
    characters += documentation.length + 2;
    if (characters > MAX_DECLARATIONS_CHARACTERS) break;
    count += 1;
  }
  const left = tools.length - count;
  const note = left === 0 ? [] : [`and ${left} more: tools.names has their names, help(…) shows one.`];
  return [declarationsOf(tools.slice(0, count)), ...note].filter((part) => part !== '').join('\n\n');
}

function withProperties(schema: JsonSchema, changes: Record<string, JsonSchema>): JsonSchema {
  const changed = [...propertiesOf(schema)].map(([name, property]) => [
    name,
    { ...property, ...changes[name] },
  ]);
  return { ...schema, properties: Object.fromEntries(changed) };
}

export type AskedProgram =
  | { programId: string }
  | { programId?: undefined; language: Language; code: string };

export function askedProgram({ language, code, program_id }: CodeArguments, root: string): AskedProgram {
  if (program_id !== undefined && language === undefined && code === undefined) {
    return { programId: program_id };
  }
  if (program_id === undefined && language !== undefined && code !== undefined) return { language, code };
  throw invalid([{ path: root, expected: 'language and code, or the program_id of a program that waited' }]);
}
