/** The tools of a caller in the format of a model API, of MCP, or as declarations for a program. */
import type { ToolDefinition } from '../tools/definition.ts';
import { type AnthropicTool, anthropicTool } from './anthropic.ts';
import { type FunctionDeclaration, functionDeclaration } from './gemini.ts';
import { type McpTool, mcpTool } from './mcp.ts';
import {
  exportedNames,
  FUNCTION_NAMES,
  GEMINI_NAMES,
  IDENTIFIERS,
  MCP_NAMES,
  type NameRule,
} from './names.ts';
import { type ChatTool, chatTool, type ResponsesTool, responsesTool } from './openai.ts';
import { pythonDeclarations } from './python.ts';
import { typescriptDeclarations } from './typescript.ts';

export const TOOL_FORMATS = [
  'openai',
  'openai-responses',
  'anthropic',
  'gemini',
  'mcp',
  'typescript',
  'python',
] as const;
export type ToolFormat = (typeof TOOL_FORMATS)[number];

export const NAME_RULES: Record<ToolFormat, NameRule> = {
  openai: FUNCTION_NAMES,
  'openai-responses': FUNCTION_NAMES,
  anthropic: FUNCTION_NAMES,
  gemini: GEMINI_NAMES,
  mcp: MCP_NAMES,
  typescript: IDENTIFIERS,
  python: IDENTIFIERS,
};

/** Where the tool `code` names its functions, in the formats that have it: descriptions for OpenAI are short. */
export const FUNCTION_PLACES: Partial<Record<ToolFormat, 'description' | 'argument'>> = {
  openai: 'argument',
  'openai-responses': 'argument',
  anthropic: 'description',
  gemini: 'description',
  mcp: 'description',
};

type ExportedTool =
  | ChatTool
  | ResponsesTool
  | AnthropicTool
  | { functionDeclarations: FunctionDeclaration[] }
  | McpTool;

export interface ExportedTools {
  format: ToolFormat;
  /** What goes into the field `tools` of a request, as it is. */
  tools?: ExportedTool[];
  /** Source text, for the formats that are one. */
  declarations?: string;
  /** Original name by exported name, of those that differ. */
  names: Record<string, string>;
}

export async function exportTools(
  tools: readonly ToolDefinition[],
  { format, strict, callers = 'direct' }: { format: ToolFormat; strict: boolean; callers?: 'direct' | 'any' },
): Promise<ExportedTools> {
  const exported = await exportedNames(
    tools.map((tool) => tool.name),
    NAME_RULES[format],
  );
  const named = tools.map((tool) => [tool, exported.get(tool.name) ?? tool.name] as const);
  const differing = named.filter(([tool, name]) => tool.name !== name);
  return {
    format,
    ...declared(named, { format, strict, callers }),
    names: Object.fromEntries(differing.map(([tool, name]) => [name, tool.name])),
  };
}

function declared(
  named: readonly (readonly [ToolDefinition, string])[],
  { format, strict, callers }: { format: ToolFormat; strict: boolean; callers: 'direct' | 'any' },
): Pick<ExportedTools, 'tools' | 'declarations'> {
  switch (format) {
    case 'openai':
      return { tools: named.map(([tool, name]) => chatTool(tool, name, strict)) };
    case 'openai-responses':
      return { tools: named.map(([tool, name]) => responsesTool(tool, name, { strict, callers })) };
    case 'anthropic':
      return { tools: named.map(([tool, name]) => anthropicTool(tool, name, callers)) };
    case 'gemini':
      return {
        tools: [{ functionDeclarations: named.map(([tool, name]) => functionDeclaration(tool, name)) }],
      };
    case 'mcp':
      return { tools: named.map(([tool, name]) => mcpTool(tool, name)) };
    case 'typescript':
      return { declarations: typescriptDeclarations(named) };
    case 'python':
      return { declarations: pythonDeclarations(named) };
  }
}
