/** Tools as an MCP server lists them. */
import type { JsonSchema, ToolDefinition } from '../tools/definition.ts';
import { objectSchema } from './object-schema.ts';

export interface McpTool {
  name: string;
  title: string;
  description: string;
  inputSchema: JsonSchema & { type: 'object' };
  annotations: {
    readOnlyHint: boolean;
    destructiveHint: boolean;
    idempotentHint: boolean;
    openWorldHint: boolean;
  };
}

export function mcpTool(tool: ToolDefinition, name: string): McpTool {
  const { readOnly, destructive, idempotent, openWorld } = tool.effects;
  return {
    name,
    title: tool.title,
    description: tool.description,
    inputSchema: inputSchema(tool.inputSchema),
    annotations: {
      readOnlyHint: readOnly,
      destructiveHint: destructive,
      idempotentHint: idempotent,
      openWorldHint: openWorld,
    },
  };
}

/** As the source has it, but for what the model APIs behind most clients refuse: alternatives at the top. */
function inputSchema(source: JsonSchema): McpTool['inputSchema'] {
  const refused = ['oneOf', 'anyOf', 'allOf', '$ref'].some((keyword) => keyword in source);
  return { ...(refused ? objectSchema(source) : source), type: 'object' };
}
