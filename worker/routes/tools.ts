/** The tools that a caller may call: as data, as declarations, and found by what they do. */
import * as z from 'zod';
import { ArgumentConstraintSchema } from '../../shared/argument-constraint.ts';
import { EMBEDDING_USES } from '../embeddings/use.ts';
import { exportTools, FUNCTION_PLACES, TOOL_FORMATS, type ToolFormat } from '../formats/export.ts';
import { invalid } from '../middleware/body.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import type { ToolDefinition } from '../tools/definition.ts';
import { TOOL_LIST_LIMITS, toolPage } from '../tools/list.ts';
import { searchTools, TOOL_SEARCH_LIMITS } from '../tools/search.ts';

const JsonObjectSchema = z.record(z.string(), z.unknown());

const ListedToolSchema = z.object({
  name: z.string(),
  description: z.string(),
  category: z.string(),
  input_schema: JsonObjectSchema,
  output_schema: JsonObjectSchema.optional(),
  constraints: z
    .array(ArgumentConstraintSchema)
    .optional()
    .describe('What arguments must be by the tool policy of the token.'),
});

export const ToolListSchema = z.object({
  tools: z.array(ListedToolSchema),
  next_cursor: z.string().nullable().describe('For `cursor`, where more follow.'),
});

export const ToolSearchSchema = z.object({
  tools: z.array(ListedToolSchema.extend({ score: z.number() })),
  embeddings: z
    .enum(EMBEDDING_USES)
    .describe('What embeddings had to do with it: `used` and `partial`; with all others words alone.'),
});

const ExportedToolsSchema = z.object({
  format: z.enum(TOOL_FORMATS),
  tools: z.array(JsonObjectSchema).optional().describe('For the field `tools` of a request, as it is.'),
  declarations: z.string().optional().describe('Source text: of `typescript` and `python`.'),
  names: z
    .record(z.string(), z.string())
    .describe('Name of the tool by exported name, of those that the format does not take as they are.'),
  next_cursor: z.string().nullable(),
});

/** The formats that have a strict mode. */
const STRICT_FORMATS: readonly ToolFormat[] = ['openai', 'openai-responses'];
const CategorySchema = z.string().min(1).max(64).optional().describe('Only tools of this category.');

const listTools = defineRoute({
  method: 'GET',
  path: '/v1/tools',
  operationId: 'listTools',
  summary: 'The tools that this caller may call, also as declarations for a model API',
  access: { kind: 'tenant' },
  query: z.strictObject({
    format: z.enum(TOOL_FORMATS).optional().describe('Declarations for this API or language.'),
    strict: z
      .enum(['true', 'false'])
      .optional()
      .describe('OpenAI: in strict mode, where a schema can be kept within its rules.'),
    callers: z
      .enum(['direct', 'any'])
      .default('direct')
      .describe('`any`: also tools that only code may call, for a model API that runs code itself.'),
    category: CategorySchema,
    cursor: z.string().min(1).max(1_024).optional().describe('`next_cursor` of the answer before.'),
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(TOOL_LIST_LIMITS.max)
      .default(TOOL_LIST_LIMITS.default)
      .describe('Tools in one answer; fewer where they are large.'),
  }),
  answers: {
    200: {
      description: 'Built-in tools, then registered ones by name',
      content: { 'application/json': z.union([ToolListSchema, ExportedToolsSchema]) },
    },
  },
  errors: [],
  handle: async (exchange, { query }) => {
    const { format, strict, callers } = query;
    if (strict !== undefined && (format === undefined || !STRICT_FORMATS.includes(format))) {
      throw invalid([{ path: 'query.strict', expected: `only with format ${STRICT_FORMATS.join(' or ')}` }]);
    }
    const { tools, nextCursor } = await toolPage(exchange, {
      ...query,
      functions: format === undefined ? undefined : FUNCTION_PLACES[format],
    });
    const next = { next_cursor: nextCursor };
    if (format === undefined) return reply(200, { tools: tools.map(listed), ...next });
    const exported = await exportTools(tools, { format, strict: strict === 'true', callers });
    return reply(200, { ...exported, ...next });
  },
});

const searchRoute = defineRoute({
  method: 'GET',
  path: '/v1/tools/search',
  operationId: 'searchTools',
  summary: 'Tools that this caller may call, found by what they do, the best first',
  access: { kind: 'tenant' },
  query: z.strictObject({
    q: z.string().min(1).max(TOOL_SEARCH_LIMITS.queryCharacters).describe('What the tool should do.'),
    category: CategorySchema,
    top_k: z.coerce
      .number()
      .int()
      .min(1)
      .max(TOOL_SEARCH_LIMITS.max)
      .default(TOOL_SEARCH_LIMITS.default)
      .describe('Tools in the answer at most.'),
  }),
  answers: {
    200: {
      description: 'None where nothing fits',
      content: { 'application/json': ToolSearchSchema },
    },
  },
  errors: [],
  handle: async (exchange, { query }) => {
    const { q, category, top_k } = query;
    const { found, embeddings } = await searchTools(exchange, { query: q, category, limit: top_k });
    const tools = found.map(({ tool, score }) => ({ ...listed(tool), score }));
    return reply(200, { tools, embeddings });
  },
});

function listed({ name, description, category, inputSchema, outputSchema, constraints }: ToolDefinition) {
  return {
    name,
    description,
    category,
    input_schema: inputSchema,
    ...(outputSchema === undefined ? {} : { output_schema: outputSchema }),
    ...(constraints === undefined ? {} : { constraints }),
  };
}

export const toolRoutes = [listTools, searchRoute];
