/** `GET /mcp`: a client before 2026-07-28 whose stream was cut comes back for what is left of it. */
import * as z from 'zod';
import { CODE_TOOL_NAME } from '../../shared/code-mode.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { BUILT_IN_TOOLS, ToolNameSchema } from '../../shared/tool.ts';
import { callerOf, sessionOf } from '../calls/own-session.ts';
import { CallCancellation } from '../mcp/cancellation.ts';
import { pointOf } from '../mcp/event-id.ts';
import { readsPrimingEvents } from '../mcp/event-lines.ts';
import { resumedStream } from '../mcp/resumed-stream.ts';
import type { TakenCall } from '../mcp/taken-call.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { EVENT_STREAM_MEDIA_TYPE, JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { StoredTool } from '../objects/catalogue/port.ts';
import { programLanguages } from '../programs/code-tool.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { requireBuiltIn } from '../tools/held-call.ts';
import { mayUse } from '../tools/policy.ts';
import { registeredGuard } from '../tools/registered.ts';
import { storedTools } from '../tools/resolve-call.ts';
import { MCP_PATH, MessageSchema, mcpSessionFault, rpcError } from './mcp.ts';

const LAST_EVENT_ID_HEADER = 'Last-Event-ID';
/** Versions from here on have no streams to come back to: their names are dates. */
const FIRST_WITHOUT_STREAMS = '2026-07-28';
const REFUSED = -32_000;

export const mcpResume = defineRoute({
  method: 'GET',
  path: MCP_PATH,
  operationId: 'resumeMcp',
  summary: 'Go on with the stream of a call over MCP that was cut (before 2026-07-28)',
  access: { kind: 'tenant', resource: MCP_PATH },
  headers: {
    'Last-Event-ID': 'The `id` of the last event that arrived: the stream goes on after it.',
    'Mcp-Session-Id': 'What the answer to `initialize` carried.',
    'Mcp-Protocol-Version': 'The version of the protocol.',
  },
  answers: {
    200: {
      description: 'What is left of the progress of the call, and its answer',
      content: {
        [EVENT_STREAM_MEDIA_TYPE]: z.string().describe('JSON-RPC messages as server-sent events.'),
      },
    },
    204: { description: 'The request was cancelled: it has no answer' },
    400: {
      description: '`Last-Event-ID` is not one of a stream of the caller, or is older than a day',
      content: { [JSON_MEDIA_TYPE]: MessageSchema },
    },
    404: {
      description: 'The MCP session is not one of the caller',
      content: { [JSON_MEDIA_TYPE]: MessageSchema },
    },
    406: {
      description: 'The caller does not take server-sent events',
      content: { [JSON_MEDIA_TYPE]: MessageSchema },
    },
  },
  errors: ['method_not_allowed', 'insufficient_scope'],
  handle: async (exchange) => {
    const { configuration, env, request } = exchange;
    const lastEventId = lastEventIdOf(request);
    if (request.headers.get('Accept')?.includes(EVENT_STREAM_MEDIA_TYPE) !== true) {
      return rpcError(406, { code: REFUSED, message: `Accept: expected ${EVENT_STREAM_MEDIA_TYPE}` });
    }
    const fault = await mcpSessionFault(exchange);
    if (fault !== undefined) return fault;
    const caller = callerOf(exchange);
    const point = await pointOf(lastEventId, { tagKey: configuration.tagKey, caller, nowMs: Date.now() });
    if (point === undefined) {
      // Not 404, by which a client would take its MCP session to be over.
      const message = `${LAST_EVENT_ID_HEADER}: expected the id of an event of a stream of yours, at most a day old`;
      return rpcError(400, { code: REFUSED, message });
    }
    const tool = await toolOf(exchange, point.call);
    const cancellation = await CallCancellation.of(env, caller, point.mcpSessionId);
    // By this clients of event streams know that they need not come back.
    if (await cancellation.wasCancelled(point.callId)) return new Response(null, { status: 204 });
    const session = sessionOf(exchange, point.call.sessionId);
    const isPrimed = readsPrimingEvents(request);
    return resumedStream(exchange, { session, point, tool, cancellation, isPrimed });
  },
});

function lastEventIdOf({ headers, method }: Request): string {
  const id = headers.get(LAST_EVENT_ID_HEADER);
  const isNewer = (headers.get('Mcp-Protocol-Version') ?? '') >= FIRST_WITHOUT_STREAMS;
  if (id !== null && !isNewer && method === 'GET') return id;
  const detail = `${method} goes on with a stream before ${FIRST_WITHOUT_STREAMS}, with ${LAST_EVENT_ID_HEADER}, and is not one of POST otherwise`;
  throw new Refusal(failure('method_not_allowed', detail), { Allow: 'POST' });
}

/** A failure where the caller may not call it, or not any more; null for one that is not registered. */
async function toolOf(
  exchange: Exchange<'tenant'>,
  { tool }: TakenCall,
): Promise<Outcome<StoredTool | null>> {
  if (tool === null) {
    const mayRunPrograms = programLanguages(exchange.principal).length > 0;
    return mayRunPrograms ? success(null) : failure('not_found', `no tool "${CODE_TOOL_NAME}"`);
  }
  const builtIn = ToolNameSchema.safeParse(tool.name);
  if (builtIn.success) {
    const { origin } = exchange.configuration;
    requireScopes(exchange.principal, [BUILT_IN_TOOLS[builtIn.data].scope], { origin, resource: MCP_PATH });
    requireBuiltIn(exchange.principal, builtIn.data);
    return success(null);
  }
  const [stored] = await storedTools(exchange, [tool.name], 'name');
  const isTheirs = stored !== undefined && mayUse(exchange.principal, registeredGuard(stored.tool));
  return isTheirs ? success(stored) : failure('not_found', `no tool ${JSON.stringify(tool.name)}`);
}
