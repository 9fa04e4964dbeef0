/** The tools that a caller may call, as data and as declarations. */
import * as z from 'zod';
import { exportTools, TOOL_FORMATS, type ToolFormat } from '../formats/export.ts';
import { invalid } from '../middleware/body.ts';
import { callableTools } from '../tools/catalogue.ts';
import { reply } from './reply.ts';
import { defineRoute } from './route.ts';

const JsonObjectSchema = z.record(z.string(), z.unknown());

export const ToolListSchema = z.object({
  tools: z.array(
    z.object({
      name: z.string(),
      description: z.string(),
      category: z.string(),
      input_schema: JsonObjectSchema,
    }),
  ),
});

const ExportedToolsSchema = z.object({
  format: z.enum(TOOL_FORMATS),
  tools: z.array(JsonObjectSchema).optional().describe('For the field `tools` of a request, as it is.'),
  declarations: z.string().optional().describe('Source text: of `typescript` and `python`.'),
  names: z
    .record(z.string(), z.string())
    .describe('Name of the tool by exported name, of those that the format does not take as they are.'),
});

/** The formats that have a strict mode. */
const STRICT_FORMATS: readonly ToolFormat[] = ['openai', 'openai-responses'];

export const listTools = defineRoute({
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
  }),
  answers: {
    200: {
      description: 'Tools by name',
      content: { 'application/json': z.union([ToolListSchema, ExportedToolsSchema]) },
    },
  },
  errors: [],
  handle: async (exchange, { query }) => {
    const { format, strict } = query;
    const tools = callableTools(exchange.principal);
    if (strict !== undefined && (format === undefined || !STRICT_FORMATS.includes(format))) {
      throw invalid([{ path: 'query.strict', expected: `only with format ${STRICT_FORMATS.join(' or ')}` }]);
    }
    if (format !== undefined)
      return reply(200, await exportTools(tools, { format, strict: strict === 'true' }));
    return reply(200, {
      tools: tools.map(({ name, description, category, inputSchema }) => ({
        name,
        description,
        category,
        input_schema: inputSchema,
      })),
    });
  },
});
