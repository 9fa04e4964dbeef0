/** Declarations for OpenAI's two APIs and for what speaks like them. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { callersIn } from './callers.ts';
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

export function responsesTool(
  tool: ToolDefinition,
  name: string,
  { strict, callers }: { strict: boolean; callers: 'direct' | 'any' },
): ResponsesTool {
  return {
    type: 'function',
    ...declaration(tool, name, strict),
    ...(callers === 'direct' ? {} : { allowed_callers: callersIn(tool.allowedCallers, PROGRAMMATIC) }),
  };
}

/** Whatever calls itself code is a program to this API. */
const PROGRAMMATIC = { isKnown: (caller: string) => caller === 'programmatic', code: 'programmatic' };

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
