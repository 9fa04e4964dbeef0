/** Where tools come from by themselves: a manifest at an address, or an MCP server. What a tenant says of one, and how it is shown. */
import * as z from 'zod';
import { DEFAULT_TIMEOUT_MS, MAX_IDLE_TIMEOUT_S, MAX_TIMEOUT_MS } from './limits.ts';
import { NetworkViewSchema } from './network.ts';
import { HeadersSchema, ScopeSchema, ToolCategorySchema } from './registered-tool.ts';
import { CreateSessionSchema } from './session.ts';

export const MAX_SOURCES_OF_A_TENANT = 100;
export const MAX_TOOLS_OF_A_SOURCE = 5_000;
/** Of the manifest, or of all pages of a list together. */
export const MAX_SOURCE_BYTES = 8 * 1024 * 1024;
/** Tools that could not be taken at all, as far as they are named. */
export const MAX_SOURCE_PROBLEMS = 50;
export const MIN_POLL_INTERVAL_S = 10;
export const MAX_POLL_INTERVAL_S = 86_400;

/** Before a dot it begins the names of the source's tools. */
export const ToolSourceNameSchema = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/);

const PollIntervalSchema = z.int().min(MIN_POLL_INTERVAL_S).max(MAX_POLL_INTERVAL_S);

/** What the tenant says of one tool of the source, by the name that the tool has there. */
const ToolRuleSchema = z.strictObject({
  disabled: z.boolean().optional(),
  approval: z.enum(['none', 'required']).optional(),
  required_scopes: z.array(ScopeSchema).max(16).optional(),
  category: ToolCategorySchema.optional(),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).optional(),
});
export type ToolRule = z.infer<typeof ToolRuleSchema>;

const COMMON = {
  name: ToolSourceNameSchema,
  description: z.string().max(1_024).default(''),
  category: ToolCategorySchema.optional().describe('Of its tools; the name of the source without it.'),
  required_scopes: z
    .array(ScopeSchema)
    .max(16)
    .optional()
    .describe('That a call of its tools needs, all of them; those of the kind of the tool without it.'),
  approval: z.enum(['none', 'required']).default('none'),
  timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).default(DEFAULT_TIMEOUT_MS),
  tools: z
    .record(z.string().max(256), ToolRuleSchema)
    .refine((rules) => Object.keys(rules).length <= 1_000, 'at most 1000 tools')
    .default({})
    .describe('For single tools, by the name that the source gives them.'),
  disabled: z.boolean().default(false).describe('Its tools are not called, and it is not asked.'),
};

const UrlSchema = z.string().max(2_048);
const SecretHeadersSchema = HeadersSchema.optional().describe(
  'Headers that are never shown again. Absent in a replacement: they stay, as long as the host does.',
);

export const ManifestSourceSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('manifest'),
  url: UrlSchema.optional().describe('Where it is fetched; without it, it is only pushed.'),
  headers: HeadersSchema.default({}),
  credentials: SecretHeadersSchema,
  poll_interval_s: PollIntervalSchema.default(300),
  webhook: z.boolean().default(false).describe('Whether changes are pushed to `webhook_url`.'),
});

export const OAuthSchema = z.strictObject({
  token_url: UrlSchema,
  client_id: z.string().min(1).max(1_024),
  client_secret: z.string().min(1).max(4_096).optional().describe('Never shown again.'),
  scope: z.string().max(1_024).optional(),
  resource: z.string().max(2_048).optional().describe('RFC 8707; the address of the server without it.'),
});

export const McpHttpSourceSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('mcp_http'),
  url: UrlSchema.describe('Of its Streamable HTTP endpoint.'),
  headers: HeadersSchema.default({}),
  credentials: SecretHeadersSchema,
  oauth: OAuthSchema.optional().describe('Client credentials (RFC 6749 section 4.4).'),
  poll_interval_s: PollIntervalSchema.default(3_600),
});

const { image, limits, network, pool, env } = CreateSessionSchema.shape;
/** Of the files that a server needs beside its image. */
export const MAX_SOURCE_ARCHIVE_BYTES = 64 * 1024 * 1024;

export const McpStdioSourceSchema = z.strictObject({
  ...COMMON,
  kind: z.literal('mcp_stdio'),
  command: z.string().min(1).max(4_096).describe('Program of the server, in the sandbox.'),
  args: z.array(z.string().max(32_768)).max(128).default([]),
  env: env
    .unwrap()
    .optional()
    .describe('Its environment, never shown again. Absent in a replacement: it stays.'),
  cwd: z.string().min(1).max(4_095).optional().describe('Absolute; without it /workspace.'),
  image: image.unwrap().default('node'),
  limits,
  network,
  pool,
  idle_timeout_s: z
    .int()
    .min(5)
    .max(MAX_IDLE_TIMEOUT_S)
    .default(300)
    .describe('How long its sandbox is kept after a call.'),
});

export const RegisterSourceSchema = z.discriminatedUnion('kind', [
  ManifestSourceSchema,
  McpHttpSourceSchema,
  McpStdioSourceSchema,
]);
export type RegisterSource = z.infer<typeof RegisterSourceSchema>;

export const SourceStateSchema = z.object({
  status: z
    .enum(['pending', 'ready', 'degraded', 'failed', 'disabled'])
    .describe(
      '`failed`: the last try did not succeed; tools that were there before stay. `degraded`: its list could not be read to the end; what was read is there.',
    ),
  last_error: z.object({ message: z.string(), at: z.iso.datetime() }).nullable(),
  refreshed_at: z.iso.datetime().nullable().describe('When its tools were last seen to be as they are.'),
  next_poll_at: z.iso.datetime().nullable(),
  tool_count: z.int(),
  broken_count: z.int(),
  problems: z
    .array(z.object({ name: z.string().nullable(), reason: z.string() }))
    .describe('Tools of it that could not be taken at all.'),
  server: z
    .object({ name: z.string(), version: z.string(), protocol_version: z.string() })
    .nullable()
    .describe('Who an MCP server says that it is.'),
  archive_bytes: z.int().nullable().default(null).describe('Of the files that were put for its sandbox.'),
});
export type SourceState = z.infer<typeof SourceStateSchema>;

export const NEW_SOURCE_STATE: SourceState = {
  status: 'pending',
  last_error: null,
  refreshed_at: null,
  next_poll_at: null,
  tool_count: 0,
  broken_count: 0,
  problems: [],
  server: null,
  archive_bytes: null,
};

const SHOWN = {
  ...SourceStateSchema.shape,
  credential_names: z.array(z.string()),
  created_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
};

/** As it is kept and shown: of secrets only the names. */
export const ToolSourceSchema = z.discriminatedUnion('kind', [
  z.object({
    ...ManifestSourceSchema.omit({ credentials: true }).shape,
    ...SHOWN,
    webhook_url: z.string().nullable(),
  }),
  z.object({
    ...McpHttpSourceSchema.omit({ credentials: true }).shape,
    oauth: OAuthSchema.omit({ client_secret: true }).optional(),
    ...SHOWN,
  }),
  z.object({
    ...McpStdioSourceSchema.omit({ env: true, network: true }).shape,
    network: NetworkViewSchema.nullable(),
    ...SHOWN,
    env_names: z.array(z.string()),
  }),
]);
export type ToolSource = z.infer<typeof ToolSourceSchema>;

/** Only when it is made: the secret is not shown again. */
export const CreatedSourceSchema = z.intersection(
  ToolSourceSchema,
  z.object({ webhook_secret: z.string().optional() }),
);

export const ToolSourceListSchema = z.object({ sources: z.array(ToolSourceSchema) });
