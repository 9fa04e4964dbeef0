/** Declarations for Anthropic's messages API. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { objectSchema } from './object-schema.ts';

export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: JsonSchema;
  allowed_callers?: string[];
}

export function anthropicTool(tool: ToolDefinition, name: string): AnthropicTool {
  const callers = tool.allowedCallers?.filter((caller) => CALLER.test(caller)) ?? [];
  return {
    name,
    description: tool.description,
    input_schema: objectSchema(tool.inputSchema),
    ...(callers.length === 0 ? {} : { allowed_callers: callers }),
  };
}

const CALLER = /^(?:direct|code_execution_\d{8})$/;
