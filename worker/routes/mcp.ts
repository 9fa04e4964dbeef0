/** The Model Context Protocol over Streamable HTTP, for both eras: 2026-07-28, and the versions before it. */
import { createMcpHandler, isLegacyRequest } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { MAX_BODY_BYTES } from '../../shared/limits.ts';
import { BUILT_IN_TOOLS, ToolNameSchema } from '../../shared/tool.ts';
import { callerOf } from '../calls/own-session.ts';
import { MCP_RESOURCE } from '../identity/access-token.ts';
import { lineAndColumn, parseStrictJson, type StrictJson } from '../json/strict-json.ts';
import { CallCancellation, type RequestId } from '../mcp/cancellation.ts';
import { KEEP_ALIVE_MS, readsPrimingEvents } from '../mcp/event-lines.ts';
import {
  calledTools,
  cancelledRequests,
  isInitialize,
  isSingleCall,
  parameterFault,
} from '../mcp/messages.ts';
import { ResumableStream } from '../mcp/resumable-stream.ts';
import { serverFor } from '../mcp/server.ts';
import { EXECUTE_CODE, RUN_COMMAND } from '../mcp/session-commands.ts';
import { isMcpSessionIdOf, MCP_SESSION_HEADER, newMcpSessionId } from '../mcp/session-id.ts';
import { SESSION_TOOLS_SCOPE, sessionTools } from '../mcp/session-tools.ts';
import { MISSING_TASKS, TASKS_EXTENSION, undeclaredTaskListener } from '../mcp/task-messages.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { EVENT_STREAM_MEDIA_TYPE, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';

export const MCP_PATH = MCP_RESOURCE;

/** One request of the tenant's rate: a batch must not be a way around it. */
const MAX_BATCH = 16;
const BOUNDS = { maxDepth: 64, maxValues: 100_000 };
const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;
const INVALID_PARAMS = -32_602;
const SESSION_NOT_FOUND = -32_001;
const MISSING_CAPABILITY = -32_021;

export const MessageSchema = z.record(z.string(), z.unknown()).describe('A JSON-RPC message.');

export const mcp = defineRoute({
  method: 'POST',
  path: MCP_PATH,
  operationId: 'mcp',
  summary: 'Model Context Protocol (Streamable HTTP)',
  access: { kind: 'tenant', resource: MCP_PATH },
  headers: {
    'Mcp-Session-Id': 'Before 2026-07-28: what the answer to `initialize` carried.',
    'Mcp-Protocol-Version': 'The version of the protocol.',
  },
  raw: { mediaTypes: [JSON_MEDIA_TYPE], maxBytes: MAX_BODY_BYTES },
  answers: {
    200: {
      description: 'Answers to the requests in the body',
      content: {
        [JSON_MEDIA_TYPE]: MessageSchema,
        [EVENT_STREAM_MEDIA_TYPE]: z.string().describe('JSON-RPC messages as server-sent events.'),
      },
    },
    202: { description: 'The body held no request' },
    400: {
      description: 'No message of the protocol, or its headers are not those of its body',
      content: { [JSON_MEDIA_TYPE]: MessageSchema },
    },
    404: {
      description: 'The MCP session is not one of the caller',
      content: { [JSON_MEDIA_TYPE]: MessageSchema },
    },
  },
  errors: ['not_found', 'insufficient_scope'],
  handle: async (exchange, { raw }) => {
    const text = decodeStrictly(raw.bytes);
    if (text === undefined) {
      return rpcError(400, { code: PARSE_ERROR, message: 'the body is not text in UTF-8' });
    }
    const parsed = parseStrictJson(text, BOUNDS);
    if (!parsed.ok) return rpcError(400, { code: PARSE_ERROR, message: faultText(text, parsed) });
    const body = parsed.value;
    if (Array.isArray(body) && body.length > MAX_BATCH) {
      return rpcError(400, { code: INVALID_REQUEST, message: `a batch has at most ${MAX_BATCH} messages` });
    }
    const isLegacy = await isLegacyRequest(exchange.request, body);
    const fault = parameterFault(body, { isLegacy });
    if (fault !== undefined) return rpcError(200, { code: INVALID_PARAMS, message: fault.text }, fault.id);
    const listener = isLegacy ? undefined : undeclaredTaskListener(body);
    if (listener !== undefined) {
      const message = `the client does not declare ${TASKS_EXTENSION}`;
      return rpcError(400, { code: MISSING_CAPABILITY, message, data: MISSING_TASKS }, listener);
    }
    requireScopesOfTools(exchange, calledTools(body));
    return isLegacy ? serveLegacy(exchange, body) : serve(exchange, body);
  },
});

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

/** Bytes that are not UTF-8 would run as other text than was sent. */
function decodeStrictly(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Versions before 2026-07-28 tell clients apart by a session, and cancel by a message of its own. */
async function serveLegacy(exchange: Exchange<'tenant'>, body: unknown): Promise<Response> {
  const caller = callerOf(exchange);
  const { tagKey } = exchange.configuration;
  const fault = await mcpSessionFault(exchange);
  if (fault !== undefined) return fault;
  const sessionId = exchange.request.headers.get(MCP_SESSION_HEADER);
  const cancellation = await CallCancellation.of(exchange.env, caller, sessionId);
  for (const requestId of cancelledRequests(body)) await cancellation.cancel(requestId);
  const isPrimed = readsPrimingEvents(exchange.request);
  const stream = isSingleCall(body)
    ? new ResumableStream({ tagKey, caller, mcpSessionId: sessionId, isPrimed })
    : undefined;
  const answered = await serve(exchange, body, { cancellation, stream });
  const response = stream?.with(answered) ?? answered;
  if (!isInitialize(body) || !response.ok) return response;
  return withHeader(response, MCP_SESSION_HEADER, await newMcpSessionId(tagKey, caller));
}

/** Where the request names an MCP session that is not one of the caller. */
export async function mcpSessionFault(exchange: Exchange<'tenant'>): Promise<Response | undefined> {
  const { tagKey } = exchange.configuration;
  const id = exchange.request.headers.get(MCP_SESSION_HEADER);
  if (id === null || (await isMcpSessionIdOf(tagKey, callerOf(exchange), id))) return undefined;
  // The client then begins anew.
  return rpcError(404, { code: SESSION_NOT_FOUND, message: 'the MCP session is not one of this caller' });
}

function serve(
  exchange: Exchange<'tenant'>,
  body: unknown,
  legacy: { cancellation?: CallCancellation; stream?: ResumableStream | undefined } = {},
): Promise<Response> {
  const handler = createMcpHandler(() => serverFor(exchange, { ...legacy, isBatch: Array.isArray(body) }), {
    // A stream notices a client that goes away, which is how it cancels in the newer era.
    responseMode: 'sse',
    keepAliveMs: KEEP_ALIVE_MS,
    onerror: () => undefined,
  });
  return handler.fetch(exchange.request, { parsedBody: body });
}

/** A known tool that the token does not reach is refused as by REST: the client learns which scope to ask for. */
export function requireScopesOfTools(exchange: Exchange<'tenant'>, names: readonly string[]): void {
  const { scopes: held } = exchange.principal;
  const scopes = names.flatMap((name) => {
    if (sessionTools.some(({ listed }) => listed.name === name)) return [SESSION_TOOLS_SCOPE];
    if (name === RUN_COMMAND) return [BUILT_IN_TOOLS.shell.scope];
    // Which language it is stands in its arguments; a token for neither learns of one.
    if (name === EXECUTE_CODE)
      return held.has(BUILT_IN_TOOLS.node.scope) ? [] : [BUILT_IN_TOOLS.python.scope];
    const tool = ToolNameSchema.safeParse(name);
    return tool.success ? [BUILT_IN_TOOLS[tool.data].scope] : [];
  });
  const { origin } = exchange.configuration;
  requireScopes(exchange.principal, [...new Set(scopes)], { origin, resource: MCP_PATH });
}

export function rpcError(
  status: number,
  error: { code: number; message: string; data?: object },
  id: RequestId | null = null,
): Response {
  return Response.json({ jsonrpc: '2.0', id, error }, { status });
}

function faultText(text: string, { expected, path, position }: Exclude<StrictJson, { ok: true }>): string {
  const { line, column } = lineAndColumn(text, position);
  const place = path === '' ? '' : ` in ${path.slice(0, 256)}`;
  return `not JSON at line ${line}, column ${column}${place}: expected ${expected}`;
}

function withHeader(response: Response, name: string, value: string): Response {
  const changed = new Response(response.body, response);
  changed.headers.set(name, value);
  return changed;
}
