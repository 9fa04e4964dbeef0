/** The HTTP routes of ms-enclave's server. docs/migrating.md has them beside ours. */
import * as z from 'zod';
import { MAX_TIMEOUT_MS } from '../../../shared/limits.ts';
import { ownSession } from '../../calls/own-session.ts';
import { writeTransfer } from '../../calls/session-transfer.ts';
import { pathOfText } from '../../content/file-path.ts';
import { unwrap } from '../../middleware/refusal.ts';
import { UNSAFE } from '../../objects/object-calls.ts';
import { TOOL_SCOPES } from '../../routes/execute.ts';
import { reply } from '../../routing/reply.ts';
import type { Exchange } from '../../routing/route.ts';
import { adapterRoute, detailReply } from '../adapter-route.ts';
import { SandboxConfigSchema, SandboxTypeSchema, sessionRequest } from './configuration.ts';
import { MS_ENCLAVE, MS_ENCLAVE_PATH } from './dialect.ts';
import { executeInPool, initializePool, MAX_POOL_SIZE } from './pool.ts';
import { availableTools, sandboxInfo } from './sandbox-info.ts';
import { executeTool, listedSandboxes, makeSandbox, registeredTools, sandboxOf } from './sandboxes.ts';
import { sandboxPath } from './tools.ts';

const WRITE = { scopes: ['sessions:write'] } as const;
const READ = { scopes: ['sessions:read'] } as const;
const CALL = { anyScope: TOOL_SCOPES } as const;
const BAD_REQUEST = 400;
const SERVER_ERROR = 500;
const VERSION = '1.0.0';

const SecondsSchema = z.coerce
  .number()
  .positive()
  .max(MAX_TIMEOUT_MS / 1_000);

const createSandbox = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/sandbox/create`,
  access: WRITE,
  query: z.strictObject({ sandbox_type: SandboxTypeSchema }),
  body: SandboxConfigSchema.nullable(),
  handle: async (exchange, { query, body }) => {
    const request = sessionRequest(body ?? { tools_config: {}, env_vars: {} }, { type: query.sandbox_type });
    if (!request.ok) return detailReply(BAD_REQUEST, request.detail);
    const made = await makeSandbox(exchange, request.value);
    if (made.ok) return reply(200, { sandbox_id: made.value.session_id });
    // Theirs says so of anything for which there is no sandbox; what passes by itself keeps its status.
    if (!NEVER_MADE.has(made.code)) return unwrap(made);
    return detailReply(BAD_REQUEST, `${made.code}: ${made.detail}`);
  },
});

const NEVER_MADE: ReadonlySet<string> = new Set(['image_not_found', 'image_refused', 'limits_exceeded']);

const listSandboxes = adapterRoute(MS_ENCLAVE, {
  method: 'GET',
  path: `${MS_ENCLAVE_PATH}/sandboxes`,
  access: READ,
  query: z.strictObject({
    status: z.enum(['initializing', 'running', 'idle', 'busy', 'stopping', 'stopped', 'error']).optional(),
  }),
  handle: async (exchange, { query }) => {
    const sessions = await listedSandboxes(exchange);
    const infos = sessions.map((session) => sandboxInfo(session, exchange.principal));
    return reply(
      200,
      infos.filter(({ status }) => query.status === undefined || status === query.status),
    );
  },
});

const getSandbox = adapterRoute(MS_ENCLAVE, {
  method: 'GET',
  path: `${MS_ENCLAVE_PATH}/sandbox/{sandbox_id}`,
  access: READ,
  handle: async (exchange, { params }) => {
    const { known } = await sandboxOf(exchange, params.sandbox_id);
    return reply(200, sandboxInfo(known, exchange.principal, await registeredTools(exchange, known)));
  },
});

const getTools = adapterRoute(MS_ENCLAVE, {
  method: 'GET',
  path: `${MS_ENCLAVE_PATH}/sandbox/{sandbox_id}/tools`,
  access: READ,
  handle: async (exchange, { params }) => {
    const { known } = await sandboxOf(exchange, params.sandbox_id);
    return reply(200, availableTools(known, exchange.principal, await registeredTools(exchange, known)));
  },
});

/** A sandbox that was stopped is never started again by them, so both end it. */
const stopSandbox = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/sandbox/{sandbox_id}/stop`,
  access: WRITE,
  handle: (exchange, { params }) => ended(exchange, params.sandbox_id, 'Sandbox stopped successfully'),
});

const deleteSandbox = adapterRoute(MS_ENCLAVE, {
  method: 'DELETE',
  path: `${MS_ENCLAVE_PATH}/sandbox/{sandbox_id}`,
  access: WRITE,
  handle: (exchange, { params }) => ended(exchange, params.sandbox_id, 'Sandbox deleted successfully'),
});

async function ended(exchange: Exchange<'tenant'>, sandboxId: string, message: string): Promise<Response> {
  const session = await ownSession(exchange, sandboxId);
  unwrap(await session.call((stub) => stub.destroy(session.caller), UNSAFE));
  return reply(200, { message });
}

const execute = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/sandbox/tool/execute`,
  access: CALL,
  body: z.looseObject({
    sandbox_id: z.string().max(256),
    tool_name: z.string().min(1).max(128),
    parameters: z.record(z.string(), z.unknown()).default({}),
    timeout: SecondsSchema.nullish(),
  }),
  handle: async (exchange, { body }) => {
    const sandbox = await sandboxOf(exchange, body.sandbox_id);
    const { tool_name: name, parameters, timeout } = body;
    return reply(
      200,
      unwrap(await executeTool(exchange, sandbox, { name, parameters, timeoutS: timeout ?? null })),
    );
  },
});

const putArchive = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/sandbox/{sandbox_id}/archive`,
  access: WRITE,
  query: z.strictObject({ target_dir: z.string().max(4_096) }),
  streamed: { mediaType: 'application/x-tar' },
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.sandbox_id);
    const { body } = exchange.request;
    if (body === null) return detailReply(BAD_REQUEST, 'Archive body must not be empty');
    const path = pathOfText(sandboxPath(query.target_dir), 'query.target_dir').base64;
    await writeTransfer(session, { operation: 'extract', path }, body);
    return reply(200, { ok: true });
  },
});

const initialize = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/pool/initialize`,
  access: WRITE,
  query: z.strictObject({
    pool_size: z.coerce.number().int().min(1).max(MAX_POOL_SIZE).default(1),
    sandbox_type: SandboxTypeSchema.default('docker'),
  }),
  body: SandboxConfigSchema.nullable(),
  handle: async (exchange, { query, body }) => {
    const config = body ?? { tools_config: {}, env_vars: {} };
    const request = sessionRequest(config, { type: query.sandbox_type, isOfPool: true });
    if (!request.ok) return detailReply(SERVER_ERROR, request.detail);
    const sandboxIds = unwrap(await initializePool(exchange, request.value, query.pool_size));
    return reply(200, {
      message: 'Pool initialized successfully',
      pool_size: sandboxIds.length,
      sandbox_ids: sandboxIds,
    });
  },
});

const executePooled = adapterRoute(MS_ENCLAVE, {
  method: 'POST',
  path: `${MS_ENCLAVE_PATH}/pool/execute`,
  access: { ...READ, ...CALL },
  query: z.strictObject({ tool_name: z.string().min(1).max(128), timeout: SecondsSchema.optional() }),
  body: z.looseObject({}),
  handle: async (exchange, { query, body }) => {
    const request = { name: query.tool_name, parameters: body, timeoutS: null };
    const result = await executeInPool(exchange, request);
    return result === null
      ? detailReply(BAD_REQUEST, 'Sandbox pool is empty, call initialize_pool first')
      : reply(200, unwrap(result));
  },
});

const health = adapterRoute(MS_ENCLAVE, {
  method: 'GET',
  path: `${MS_ENCLAVE_PATH}/health`,
  access: READ,
  handle: async (exchange) => {
    const stats = await statistics(exchange);
    const active = stats.total_sandboxes;
    return reply(200, {
      healthy: true,
      version: VERSION,
      uptime: 0,
      active_sandboxes: active,
      system_info: stats,
    });
  },
});

const stats = adapterRoute(MS_ENCLAVE, {
  method: 'GET',
  path: `${MS_ENCLAVE_PATH}/stats`,
  access: READ,
  handle: async (exchange) => reply(200, await statistics(exchange)),
});

/** Of the caller's sandboxes: nobody counts those of others. */
async function statistics(exchange: Exchange<'tenant'>) {
  const infos = (await listedSandboxes(exchange)).map((session) => sandboxInfo(session, exchange.principal));
  const pooled = infos.filter(({ metadata }) => metadata['ms-enclave.pool'] !== undefined).length;
  return {
    manager_type: 'sandgate',
    total_sandboxes: infos.length,
    status_counts: counted(infos.map(({ status }) => status)),
    sandbox_types: counted(infos.map(({ type }) => type)),
    running: true,
    cleanup_interval: null,
    pool_size: pooled,
    pool_enabled: pooled > 0,
    pool_initialized: pooled > 0,
  };
}

function counted(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

export const msEnclaveRoutes = [
  health,
  stats,
  createSandbox,
  listSandboxes,
  execute,
  getSandbox,
  stopSandbox,
  deleteSandbox,
  getTools,
  putArchive,
  initialize,
  executePooled,
];
