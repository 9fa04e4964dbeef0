/** Declarations for Anthropic's messages API. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { objectSchema } from './object-schema.ts';

export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: JsonSchema;
}

export function anthropicTool(tool: ToolDefinition, name: string): AnthropicTool {
  return { name, description: tool.description, input_schema: objectSchema(tool.inputSchema) };
}
