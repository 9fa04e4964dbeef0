/** XAgent's ToolServer: its manager's routes for nodes, and the routes of a node. docs/migrating.md has both beside ours. */
/** XAgent's ToolServer: its manager's routes for nodes, and the routes of a node. docs/migrating.md has both beside ours. */
import * as z from 'zod';
import { failure } from '../../../shared/errors.ts';
import { CreateSessionSchema } from '../../../shared/session.ts';
import { ToolNameSchema } from '../../../shared/tool.ts';
import { placeAndCreate, reserveSession } from '../../calls/create-session.ts';
import { readTransfer, writeTransfer } from '../../calls/session-transfer.ts';
import { contentHeaders } from '../../content/file-headers.ts';
import { pathOfText } from '../../content/file-path.ts';
import { checkValue } from '../../middleware/body.ts';
import { Refusal, unwrap } from '../../middleware/refusal.ts';
import { SAFE, UNSAFE } from '../../objects/object-calls.ts';
import { TOOL_SCOPES } from '../../routes/execute.ts';
import { reply } from '../../routing/reply.ts';
import type { Exchange } from '../../routing/route.ts';
import { searchTools, TOOL_SEARCH_LIMITS } from '../../tools/search.ts';
import { adapterRoute, detailReply } from '../adapter-route.ts';
import { zipOfTar } from '../archive/zip-of-tar.ts';
import { runCall, withoutNulls } from '../run-call.ts';
import {
  availableTools,
  environmentSchemas,
  foundDeclarations,
  namedDeclarations,
  ownTools,
  registeredDeclaration,
} from './declarations.ts';
import { XAGENT, XAGENT_PATH } from './dialect.ts';
import { invalidNode, nodeCookie, nodeExecution, nodeIdOf, nodeOf } from './node.ts';
import { registerFunction } from './register.ts';
import { failedReply, textAndImages, wrapped } from './response.ts';
import { workspacePath } from './tools.ts';
import { workspaceTree } from './workspace.ts';

/** What their clients may compare; the version of the ToolServer whose routes these are. */
const VERSION = '0.2';
/** Theirs live for half an hour without a call. */
const IDLE_TIMEOUT_S = 30 * 60;
const MULTIPART = 'multipart/form-data';
/** A form is read whole; larger files go as they are to `PUT /v1/sessions/{id}/files/{path}`. */
const MAX_UPLOAD_BYTES = 16 * 1024 * 1024;
const NOT_REGISTERED = 406;

const WRITE = { scopes: ['sessions:write'] } as const;
const READ = { scopes: ['sessions:read'] } as const;
const CALL = { anyScope: TOOL_SCOPES } as const;

const alive = adapterRoute(XAGENT, {
  method: 'GET',
  path: `${XAGENT_PATH}/alive`,
  handle: () => reply(200, 'alive'),
});

const getCookie = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/get_cookie`,
  access: WRITE,
  // Their client sends none; whoever wants a network or an image says so as to our own route.
  body: z.looseObject({}),
  handle: async (exchange, { body }) => {
    const request = checkValue({ idle_timeout_s: IDLE_TIMEOUT_S, ...body }, CreateSessionSchema, 'body');
    const reserved = await reserveSession(exchange, null);
    const session = unwrap(await placeAndCreate(exchange, { ...reserved, request, ephemeral: false }));
    const cookie = nodeCookie(session.session_id, exchange.configuration.origin);
    return reply(200, { message: 'add cookie', version: VERSION }, { 'Set-Cookie': cookie });
  },
});

const reconnectSession = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/reconnect_session`,
  access: READ,
  handle: (exchange) =>
    sayOfNode(exchange, 'Reconnect', async () => {
      const session = await nodeOf(exchange);
      unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
    }),
});

/** Theirs stops a node that nobody starts again; here both end the session. */
const [closeSession, releaseSession] = (['Close', 'Release'] as const).map((verb) =>
  adapterRoute(XAGENT, {
    method: 'POST',
    path: `${XAGENT_PATH}/${verb.toLowerCase()}_session`,
    access: WRITE,
    handle: (exchange) =>
      sayOfNode(exchange, verb, async () => {
        const session = await nodeOf(exchange);
        unwrap(await session.call((stub) => stub.destroy(session.caller), UNSAFE));
      }),
  }),
);

/** Their manager answers with a sentence, also of a node that it does not know. */
async function sayOfNode(
  exchange: Exchange<'tenant'>,
  verb: string,
  act: () => Promise<void>,
): Promise<Response> {
  const id = nodeIdOf(exchange.request.headers);
  try {
    await act();
    return reply(200, `${verb} session: ${id}`);
  } catch (error: unknown) {
    if (!(error instanceof Refusal) || !GONE.has(error.failure.code)) throw error;
    return reply(200, invalidNode(id).failure.detail);
  }
}

const GONE: ReadonlySet<string> = new Set(['forbidden', 'not_found', 'session_deleted']);

const uploadFile = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/upload_file`,
  access: WRITE,
  raw: { mediaTypes: [MULTIPART], maxBytes: MAX_UPLOAD_BYTES },
  handle: async (exchange, { raw }) => {
    const session = await nodeOf(exchange);
    const file = await fileOfForm(raw.bytes, exchange.request.headers.get('Content-Type') ?? MULTIPART);
    const path = pathOfText(workspacePath(file.name), 'body.file').base64;
    const request = { operation: 'write', path, if_match: null, if_none_match: null } as const;
    await writeTransfer(session, { ...request, mode: null, sha256: null }, file.stream());
    return reply(200, { message: 'Upload Success!' });
  },
});

async function fileOfForm(bytes: Uint8Array<ArrayBuffer>, contentType: string): Promise<File> {
  const form = await new Response(bytes, { headers: { 'Content-Type': contentType } })
    .formData()
    .catch(() => undefined);
  const file = form?.get('file');
  if (file instanceof File && file.name !== '') return file;
  throw new Refusal(
    failure('invalid_request', 'body.file: expected a file with its name', {
      violations: [{ path: 'body.file', expected: 'a file with its name' }],
    }),
  );
}

const downloadFile = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/download_file`,
  access: READ,
  body: z.looseObject({ file_path: z.string().min(1).max(4_096) }),
  handle: async (exchange, { body }) => {
    const session = await nodeOf(exchange);
    const path = pathOfText(workspacePath(body.file_path), 'body.file_path');
    const { head, body: bytes } = await readTransfer(session, {
      operation: 'read',
      path: path.base64,
      if_match: null,
      if_none_match: null,
      range: null,
      if_range: null,
      head: false,
    });
    return new Response(bytes, { headers: contentHeaders(head, path.bytes) });
  },
});

const downloadWorkspace = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/download_workspace`,
  access: READ,
  handle: async (exchange) => {
    const session = await nodeOf(exchange);
    const path = pathOfText('', 'path').base64;
    const { body } = await readTransfer(session, { operation: 'archive', path });
    const headers = {
      'Content-Type': 'application/zip',
      'Content-Disposition': 'attachment; filename="workspace.zip"',
    };
    return new Response(body === null ? null : zipOfTar(body), { headers });
  },
});

const getWorkspaceStructure = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/get_workspace_structure`,
  access: READ,
  handle: async (exchange) => reply(200, await workspaceTree(await nodeOf(exchange))),
});

const getAvailableTools = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/get_available_tools`,
  handle: async (exchange) => reply(200, await availableTools(exchange)),
});

const retrievingTools = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/retrieving_tools`,
  body: z.looseObject({
    question: z.string().min(1).max(TOOL_SEARCH_LIMITS.queryCharacters),
    top_k: z.int().min(1).max(TOOL_SEARCH_LIMITS.max).default(TOOL_SEARCH_LIMITS.default),
  }),
  handle: async (exchange, { body }) => {
    const { found } = await searchTools(exchange, { query: body.question, limit: body.top_k });
    const declared = await foundDeclarations(
      exchange,
      found.map(({ tool }) => tool),
    );
    return reply(200, { retrieved_tools: declared.map(({ name }) => name), tools_json: declared });
  },
});

const NamesSchema = z.array(z.string().max(128)).max(1_000);

const getJsonSchemaForTools = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/get_json_schema_for_tools`,
  // Their client sends an object, their server reads the list itself.
  body: z.union([z.looseObject({ tool_names: NamesSchema }), NamesSchema]),
  handle: async (exchange, { body }) =>
    reply(200, await namedDeclarations(exchange, Array.isArray(body) ? body : body.tool_names)),
});

const getJsonSchemaForEnvs = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/get_json_schema_for_envs`,
  body: z.union([z.looseObject({ env_names: NamesSchema }), NamesSchema]),
  handle: async (exchange, { body }) =>
    reply(200, await environmentSchemas(exchange, Array.isArray(body) ? body : body.env_names)),
});

const registerNewTool = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/register_new_tool`,
  access: { scopes: ['tools:write'] },
  body: z.looseObject({ tool_name: z.string().min(1).max(128), code: z.string().min(1) }),
  handle: async (exchange, { body }) => {
    const registered = await registerFunction(exchange, body);
    if (registered.ok) return reply(200, await registeredDeclaration(registered.value.tool));
    if (!NOT_TAKEN.has(registered.code)) return unwrap(registered);
    return detailReply(NOT_REGISTERED, `Error happens when registering new tool:\n${registered.detail}`);
  },
});

/** Faults of the tool, not of the request. */
const NOT_TAKEN: ReadonlySet<string> = new Set(['invalid_request', 'tool_exists', 'quota_exceeded']);

const executeTool = adapterRoute(XAGENT, {
  method: 'POST',
  path: `${XAGENT_PATH}/execute_tool`,
  access: CALL,
  body: z.looseObject({
    tool_name: z.string().min(1).max(128),
    arguments: z.record(z.string(), z.unknown()),
    env_name: z.string().max(128).nullish(),
  }),
  handle: async (exchange, { body }) => {
    const session = await nodeOf(exchange);
    const { env_name } = body;
    const name = (env_name ?? null) === null ? body.tool_name : `${env_name}_${body.tool_name}`;
    const own = ownTools(exchange).find((tool) => tool.name === name);
    if (own !== undefined) {
      return own.run(
        { exchange, session },
        checkValue(withoutNulls(body.arguments), own.arguments, 'body.arguments'),
      );
    }
    const outcome = await runCall(exchange, session, { name, arguments: body.arguments });
    const execution = nodeExecution(exchange, outcome);
    const failed = failedReply(execution);
    if (failed !== undefined) return failed;
    // A registered tool has an answer of its own; of a built-in one its text is the answer.
    const isBuiltIn = ToolNameSchema.safeParse(name).success;
    return reply(200, isBuiltIn ? textAndImages(execution) : wrapped(execution.structured ?? null));
  },
});

export const xagentRoutes = [
  alive,
  getCookie,
  reconnectSession,
  closeSession,
  releaseSession,
  uploadFile,
  downloadFile,
  downloadWorkspace,
  getWorkspaceStructure,
  getAvailableTools,
  retrievingTools,
  getJsonSchemaForTools,
  getJsonSchemaForEnvs,
  registerNewTool,
  executeTool,
].filter((route) => route !== undefined);
