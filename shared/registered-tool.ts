/** Tools that a tenant registers: what it says of them, and how they are shown. */
import * as z from 'zod';
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS } from './limits.ts';
import { ToolNameSchema } from './tool.ts';

export const MAX_TOOLS_OF_A_TENANT = 10_000;
/** Of all their definitions as JSON: they are searched in memory. */
export const MAX_TOOL_CHARACTERS_OF_A_TENANT = 32 * 1024 * 1024;
export const MAX_TOOLS_AT_ONCE = 500;
export const MAX_TOOL_VERSIONS = 10;
export const MAX_TOOL_SCHEMA_CHARACTERS = 65_536;
export const MAX_TOOL_CODE_CHARACTERS = 262_144;

/** Names that stand for something else where tools are called or listed. */
const RESERVED = [
  'search',
  'create_session',
  'delete_session',
  'search_tools',
  'call_tool',
  'code',
  'workers_ai',
  'answer_program',
  'list_approvals',
  'decide_approval',
];

/** Patterns with classes of Unicode are not part of the schemas: their readers may not know the mode that they need. */
const PRINTED = /^[^\p{C}\s](?:[^\p{C}]*[^\p{C}\s])?$/u;
const CATEGORY = /^[\p{L}\p{N}][\p{L}\p{N} ._/-]{0,63}$/u;

export const RegisteredToolNameSchema = z
  .string()
  .max(128)
  .refine((name) => PRINTED.test(name), 'a name without control characters or spaces around it')
  .refine((name) => !ToolNameSchema.safeParse(name).success, 'a name that no built-in tool has')
  .refine((name) => !RESERVED.includes(name), `none of ${RESERVED.join(', ')}`);

/**
 * Why no tool can have the name; undefined where one can. A name that had been free may be a built-in tool's by now.
 */
export function nameFault(name: string): string | undefined {
  return RegisteredToolNameSchema.safeParse(name).error?.issues[0]?.message;
}

export const ToolCategorySchema = z
  .string()
  .refine((category) => CATEGORY.test(category), 'letters, digits, spaces, dots, dashes and slashes');

const JsonSchemaSchema = z
  .record(z.string(), z.unknown())
  .refine((schema) => JSON.stringify(schema).length <= MAX_TOOL_SCHEMA_CHARACTERS, {
    message: `a schema of at most ${MAX_TOOL_SCHEMA_CHARACTERS} characters`,
  });

/** RFC 6749 section 3.3. */
export const ScopeSchema = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,128}$/);
const HeaderNameSchema = z.string().regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/);
const HeaderValueSchema = z
  .string()
  .max(8_192)
  .regex(/^[\x20-\x7e]*$/);
export const HeadersSchema = z
  .record(HeaderNameSchema, HeaderValueSchema)
  .refine((headers) => Object.keys(headers).length <= 32, 'at most 32 headers');

const COMMON = {
  name: RegisteredToolNameSchema,
  version: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$/)
    .default('1'),
  title: z.string().min(1).max(128).optional(),
  description: z.string().min(1).max(8_192),
  category: ToolCategorySchema.default('general'),
  input_schema: JsonSchemaSchema.default({ type: 'object', properties: {} }).describe(
    'JSON Schema of the arguments: 2020-12, or the dialect that `$schema` names (draft-07).',
  ),
  output_schema: JsonSchemaSchema.optional().describe('JSON Schema of what the tool gives.'),
  required_scopes: z
    .array(ScopeSchema)
    .max(16)
    .optional()
    .describe('Scopes that a call needs, all of them; those of the kind when it is absent.'),
  side_effects: z
    .array(z.enum(['read', 'write', 'idempotent']))
    .max(3)
    .default(['write']),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).default(DEFAULT_TIMEOUT_MS),
  allowed_callers: z
    .array(z.string().regex(/^(?:direct|code|programmatic|code_execution_\d{8})$/))
    .min(1)
    .max(8)
    .optional()
    .describe(
      'Who may call it: `direct`, or code in a session (`code`, `programmatic` or `code_execution_…`); anybody when it is absent.',
    ),
  disabled: z.boolean().default(false),
  approval: z.enum(['none', 'required']).default('none'),
};

export const CodeToolSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('code'),
  language: z.enum(['python', 'javascript']),
  code: z.string().min(1).max(MAX_TOOL_CODE_CHARACTERS).describe('Source that defines the function.'),
  function: z
    .string()
    .regex(/^[A-Za-z_$][A-Za-z0-9_$]{0,127}$/)
    .optional()
    .describe('Name of the function; without it the one called like the tool, or `main`.'),
});

export const HttpToolSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('http'),
  url: z
    .string()
    .max(2_048)
    .describe('Address; `{name}` in it stands for that argument. The host is always written out.'),
  method: z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']).default('POST'),
  headers: HeadersSchema.default({}),
  credentials: HeadersSchema.optional().describe(
    'Headers that are added to each request and never shown again. Absent in a replacement: they stay; `{}` takes them away.',
  ),
});

export const ClientToolSchema = z.strictObject({ ...COMMON, kind: z.literal('client') });

/** Only sources make these: the tool of an MCP server, under the name that it has there. */
export const McpToolSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('mcp'),
  remote_name: z.string().describe('Its name at the server.'),
});

export const RegisterToolSchema = z.discriminatedUnion('kind', [
  CodeToolSchema,
  HttpToolSchema,
  ClientToolSchema,
]);
export type RegisterTool = z.infer<typeof RegisterToolSchema>;
/** Also what a source brings. */
export type DefinedTool = RegisterTool | z.infer<typeof McpToolSchema>;

export const ToolStatusSchema = z.enum(['ready', 'disabled', 'broken']);
export type ToolStatus = z.infer<typeof ToolStatusSchema>;

const STATE = {
  /** As it was registered, whatever names are free by now. */
  name: z.string(),
  required_scopes: z.array(z.string()),
  status: ToolStatusSchema,
  reason: z.string().nullable().describe('Why it is broken.'),
  created_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
  versions: z.array(z.string()).describe('Those that are kept, the newest first.'),
  source: z.string().nullable().default(null).describe('The tool source that it comes from.'),
};

/** As it is kept and shown: of credentials only the names. */
export const RegisteredToolSchema = z.discriminatedUnion('kind', [
  z.object({ ...CodeToolSchema.shape, ...STATE }),
  z.object({
    ...HttpToolSchema.omit({ credentials: true }).shape,
    ...STATE,
    credential_names: z.array(z.string()),
  }),
  z.object({ ...ClientToolSchema.shape, ...STATE }),
  z.object({ ...McpToolSchema.shape, ...STATE }),
]);
export type RegisteredTool = z.infer<typeof RegisteredToolSchema>;

/** The tool, or many: then each is marked by itself. */
export const RegisterToolsSchema = z.strictObject({
  tools: z.array(z.record(z.string(), z.unknown())).min(1).max(MAX_TOOLS_AT_ONCE),
});

export const RegisteredManySchema = z.object({
  tools: z.array(
    z.object({
      name: z.string().nullable(),
      status: z.enum(['created', 'replaced', 'unchanged', 'broken', 'refused']),
      reason: z.string().nullable(),
    }),
  ),
});
export type RegisteredMany = z.infer<typeof RegisteredManySchema>;

/** What a call of a tool of this kind can do, and so who may make one if the tool does not say. */
export function scopesOfKind(
  tool: Pick<DefinedTool, 'kind'> & { language?: 'python' | 'javascript' },
): string[] {
  switch (tool.kind) {
    case 'code':
      return [tool.language === 'javascript' ? 'tools:node' : 'tools:python'];
    case 'http':
      return ['tools:http'];
    case 'client':
      return ['tools:client'];
    case 'mcp':
      return ['tools:mcp'];
  }
}
