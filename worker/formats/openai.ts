/** Declarations for OpenAI's two APIs and for what speaks like them. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { objectSchema } from './object-schema.ts';
import { strictSchema } from './strict-schema.ts';

const MAX_DESCRIPTION_LENGTH = 1_024;

interface FunctionDeclaration {
  name: string;
  description: string;
  parameters: JsonSchema;
  strict: boolean;
}

export interface ChatTool {
  type: 'function';
  function: FunctionDeclaration;
}

export interface ResponsesTool extends FunctionDeclaration {
  type: 'function';
  allowed_callers?: string[];
}

export function chatTool(tool: ToolDefinition, name: string, wantsStrict: boolean): ChatTool {
  return { type: 'function', function: declaration(tool, name, wantsStrict) };
}

export function responsesTool(tool: ToolDefinition, name: string, wantsStrict: boolean): ResponsesTool {
  const callers = tool.allowedCallers?.filter((caller) => CALLERS.includes(caller)) ?? [];
  return {
    type: 'function',
    ...declaration(tool, name, wantsStrict),
    ...(callers.length === 0 ? {} : { allowed_callers: callers }),
  };
}

const CALLERS = ['direct', 'programmatic'];

/** `strict` is always said: one of the two APIs takes a missing one for true. */
function declaration(tool: ToolDefinition, name: string, wantsStrict: boolean): FunctionDeclaration {
  const parameters = objectSchema(tool.inputSchema);
  const strict = wantsStrict ? strictSchema(parameters) : undefined;
  return {
    name,
    description: shortened(tool.description, MAX_DESCRIPTION_LENGTH),
    parameters: strict ?? parameters,
    strict: strict !== undefined,
  };
}

function shortened(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}
