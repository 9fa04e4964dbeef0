/** Declarations for Anthropic's messages API. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { callersIn } from './callers.ts';
import { objectSchema } from './object-schema.ts';

export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: JsonSchema;
  allowed_callers?: string[];
}

export function anthropicTool(tool: ToolDefinition, name: string, callers: 'direct' | 'any'): AnthropicTool {
  return {
    name,
    description: tool.description,
    input_schema: objectSchema(tool.inputSchema),
    ...(callers === 'direct' ? {} : { allowed_callers: callersIn(tool.allowedCallers, CODE_EXECUTION) }),
  };
}

/** A caller is a version of its tool for code; the first is said where a tool names none. */
const CODE_EXECUTION = {
  isKnown: (caller: string) => /^code_execution_\d{8}$/.test(caller),
  code: 'code_execution_20250825',
};
