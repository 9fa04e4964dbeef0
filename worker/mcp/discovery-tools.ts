/** Tools to find tools and to call them by name: for catalogues that are too long to be read whole. */
import * as z from 'zod';
import { EMBEDDING_USES } from '../embeddings/use.ts';
import { without } from '../formats/json-schema.ts';
import { mcpTool } from '../formats/mcp.ts';
import { withoutAbsent } from '../formats/nulls.ts';
import { checkValue } from '../middleware/body.ts';
import type { JsonSchema } from '../tools/definition.ts';
import { searchTools, TOOL_SEARCH_LIMITS } from '../tools/search.ts';
import { IdempotencyKeySchema } from './call-options.ts';
import { callByName } from './execute-tools.ts';
import type { McpServerTool } from './tool.ts';

const SearchArgumentsSchema = z.strictObject({
  query: z.string().min(1).max(TOOL_SEARCH_LIMITS.queryCharacters).describe('What the tool should do.'),
  category: z.string().min(1).max(64).optional().describe('Only tools of this category.'),
  top_k: z.int().min(1).max(TOOL_SEARCH_LIMITS.max).default(TOOL_SEARCH_LIMITS.default),
});

const FoundSchema = z.object({
  tools: z.array(
    z.object({
      name: z.string(),
      description: z.string(),
      category: z.string(),
      input_schema: z.record(z.string(), z.unknown()),
      score: z.number(),
    }),
  ),
  embeddings: z.enum(EMBEDDING_USES),
});

const CallArgumentsSchema = z.strictObject({
  name: z.string().min(1).max(128).describe('Name of the tool, as search_tools gives it.'),
  arguments: z.record(z.string(), z.unknown()).default({}).describe('By the input_schema of the tool.'),
  session_id: z.string().max(64).optional().describe('The session to run in, from create_session.'),
  timeout_ms: z.int().min(1).optional(),
  idempotency_key: IdempotencyKeySchema.optional(),
});

const searchInput = inputOf(SearchArgumentsSchema);
const callInput = inputOf(CallArgumentsSchema);

const searchTool: McpServerTool = {
  listed: {
    ...mcpTool(
      {
        name: 'search_tools',
        title: 'Search tools',
        description:
          'Find tools by what they do. Gives name, description and input_schema of those that you may call; call one with call_tool.',
        category: 'tools',
        inputSchema: searchInput,
        effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
      },
      'search_tools',
    ),
    outputSchema: { ...without(z.toJSONSchema(FoundSchema), ['$schema']), type: 'object' },
  },
  call: async (given, { exchange }) => {
    const args = checkValue(withoutAbsent(given, searchInput), SearchArgumentsSchema, 'arguments');
    const { query, category, top_k } = args;
    const { found, embeddings } = await searchTools(exchange, { query, category, limit: top_k });
    const tools = found.map(({ tool, score }) => ({
      name: tool.name,
      description: tool.description,
      category: tool.category,
      input_schema: { ...tool.inputSchema },
      score,
    }));
    const text = tools.length === 0 ? 'no tool fits' : tools.map((tool) => JSON.stringify(tool)).join('\n');
    return { content: [{ type: 'text', text }], structuredContent: { tools, embeddings } };
  },
};

const callTool: McpServerTool = {
  listed: mcpTool(
    {
      name: 'call_tool',
      title: 'Call a tool',
      description: 'Call a tool by its name, for example one that search_tools has found.',
      category: 'tools',
      inputSchema: callInput,
      effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
    },
    'call_tool',
  ),
  call: async (given, context) => {
    const args = checkValue(withoutAbsent(given, callInput), CallArgumentsSchema, 'arguments');
    const { name, arguments: own, ...options } = args;
    return callByName(name, { args: own, options }, context);
  },
};

export const discoveryTools: readonly McpServerTool[] = [searchTool, callTool];

function inputOf(schema: z.ZodType): JsonSchema {
  return without(z.toJSONSchema(schema, { io: 'input' }), ['$schema']);
}
