/** A session as ms-enclave's clients know a sandbox. */
import * as z from 'zod';
import type { SessionState } from '../../../shared/lifecycle.ts';
import { objectSchema } from '../../formats/object-schema.ts';
import type { TenantPrincipal } from '../../identity/principal.ts';
import { callableTools } from '../../tools/catalogue.ts';
import type { JsonSchema, ToolDefinition } from '../../tools/definition.ts';
import { METADATA } from './configuration.ts';
import { ENCLAVE_TOOLS } from './tools.ts';

export interface KnownSession {
  session_id: string;
  state: SessionState;
  image: string;
  metadata: Readonly<Record<string, string>>;
  created_at: string;
  last_activity_at?: string;
}

const STATUSES: Record<SessionState, string> = {
  creating: 'initializing',
  running: 'running',
  paused: 'idle',
  suspended: 'idle',
  error: 'error',
  destroying: 'stopping',
  destroyed: 'stopped',
};

const ToolNamesSchema = z
  .string()
  .transform((text): unknown => JSON.parse(text))
  .pipe(z.array(z.string()));

/** Undefined for a session that was not made for these clients: all tools are enabled there. */
export function enabledTools({ metadata }: Pick<KnownSession, 'metadata'>): string[] | undefined {
  const text = metadata[METADATA.tools];
  return text === undefined ? undefined : ToolNamesSchema.parse(text);
}

export function sandboxInfo(
  session: KnownSession,
  principal: TenantPrincipal,
  registered: readonly ToolDefinition[] = [],
) {
  const { session_id, state, image, metadata, created_at, last_activity_at } = session;
  return {
    id: session_id,
    status: STATUSES[state],
    type: metadata[METADATA.type] ?? 'docker',
    config: {
      image,
      tools_config: Object.fromEntries((enabledTools(session) ?? []).map((name) => [name, {}])),
    },
    created_at,
    updated_at: last_activity_at ?? created_at,
    metadata,
    available_tools: availableTools(session, principal, registered),
  };
}

interface FunctionSchema {
  type: 'function';
  function: { name: string; description: string; parameters: JsonSchema };
}

/** Those that the sandbox was configured with and that the caller may call, by name. */
export function availableTools(
  session: Pick<KnownSession, 'metadata'>,
  principal: TenantPrincipal,
  registered: readonly ToolDefinition[],
): Record<string, FunctionSchema> {
  const enabled = enabledTools(session);
  const callable = new Set<string>(callableTools(principal).map(({ name }) => name));
  const own = ENCLAVE_TOOLS.filter(({ of }) => callable.has(of)).map(
    ({ name, description, arguments: schema }) =>
      functionSchema(name, description, z.toJSONSchema(schema, { io: 'input' })),
  );
  const others = registered.map(({ name, description, inputSchema }) =>
    functionSchema(name, description, objectSchema(inputSchema)),
  );
  return Object.fromEntries(
    [...own, ...others]
      .filter((schema) => enabled?.includes(schema.function.name) ?? true)
      .map((schema) => [schema.function.name, schema]),
  );
}

function functionSchema(name: string, description: string, schema: JsonSchema): FunctionSchema {
  const { type = 'object', properties = {}, required = [] } = schema;
  return { type: 'function', function: { name, description, parameters: { type, properties, required } } };
}
