/** Executions of a session: history, one, its events, its receipt, and what acts on a running one. */
import * as z from 'zod';
import { EnvelopeSchema } from '../../shared/dsse.ts';
import { ExecutionSchema, parseCursor, StreamEventSchema } from '../../shared/execution.ts';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { MAX_STDIN_BYTES } from '../../shared/limits.ts';
import { ReceiptExportSchema } from '../../shared/receipt-verify.ts';
import { BUILT_IN_TOOLS, ToolNameSchema } from '../../shared/tool.ts';
import { callEvents } from '../calls/call-events.ts';
import { StreamTextSchema } from '../calls/event-stream-text.ts';
import { findExecution, stopExecution } from '../calls/own-execution.ts';
import { executionIdOf, notFound, ownSession } from '../calls/own-session.ts';
import { openEvents } from '../calls/session-stream.ts';
import { eventSocketResponse, eventsSubprotocolOf, wantsSocket } from '../event-sockets/upgrade.ts';
import type { TenantPrincipal } from '../identity/principal.ts';
import { requireScopes } from '../middleware/authentication.ts';
import { EVENT_STREAM_MEDIA_TYPE, invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { requireWholly } from '../tools/held-call.ts';
import { TOOL_SCOPES } from './execute.ts';
import { executionPage } from './execution-list.ts';
import { receiptsOf } from './receipts-of-session.ts';
import { rawStdin, StdinQuerySchema, stdinOf } from './stdin-body.ts';

const EncodingQuery = z
  .enum(['utf-8', 'base64'])
  .default('utf-8')
  .describe('How `stdout` and `stderr` are given.');

export const ExecutionListSchema = z.object({
  executions: z.array(ExecutionSchema),
  next_cursor: z.string().nullable(),
});

const listExecutions = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/executions',
  operationId: 'listExecutions',
  summary:
    'The executions of a session, also those that wait for an approval, newest first, without what they wrote or gave: `stdout`, `stderr` and `results` are empty, `value` and `structured` null',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    limit: z.coerce.number().int().min(1).max(100).default(20).describe('Executions in one answer.'),
    cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the answer before.'),
    inner: z.enum(['true', 'false']).default('false').describe('Whether the calls of programs are in it.'),
  }),
  answers: { 200: { description: 'A page', content: { 'application/json': ExecutionListSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const page = { limit: query.limit, cursor: query.cursor, inner: query.inner === 'true' };
    return reply(200, await executionPage(exchange, session, page));
  },
});

const getExecution = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/executions/{execution_id}',
  operationId: 'getExecution',
  summary: 'One execution, running or ended',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({ encoding: EncodingQuery }),
  answers: { 200: { description: 'The execution', content: { 'application/json': ExecutionSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const executionId = executionIdOf(params.execution_id);
    const found = await findExecution(exchange, session, {
      executionId,
      read: (stub) => stub.getExecution(session.caller, executionId, query.encoding),
    });
    return reply(200, unwrap(found));
  },
});

const streamExecution = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/executions/{execution_id}/events',
  operationId: 'streamExecution',
  summary:
    'The events of an execution from the beginning, or after `Last-Event-ID`: as server-sent events, or upgraded to a WebSocket with a text message `{id, data}` for each',
  access: { kind: 'tenant', scopes: ['sessions:read'], webSocket: true },
  query: z.strictObject({
    encoding: EncodingQuery,
    last_event_id: z
      .string()
      .max(256)
      .optional()
      .describe('As `Last-Event-ID`, for those who cannot send it.'),
  }),
  headers: {
    'Last-Event-ID': 'The `id` of the last event that arrived: the stream goes on after it.',
    Upgrade: '`websocket`, for a socket.',
    'Sec-WebSocket-Protocol':
      'From a page, `sandgate.events` and `sandgate.bearer.` with the token, which then needs no `Authorization`.',
  },
  answers: {
    101: { description: 'The socket' },
    200: { description: 'Events', content: { [EVENT_STREAM_MEDIA_TYPE]: StreamTextSchema } },
  },
  errors: ['not_found', 'quota_exceeded'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const executionId = executionIdOf(params.execution_id);
    const { headers } = exchange.request;
    const lastEventId = lastEventIdOf(
      headers.get('Last-Event-ID') ?? query.last_event_id ?? null,
      executionId,
    );
    const subprotocol = wantsSocket(headers) ? eventsSubprotocolOf(headers) : undefined;
    const wanted = { executionId, encoding: query.encoding, lastEventId };
    const ran = await openEvents(session, wanted);
    const elsewhere =
      ran.ok || ran.code !== 'not_found' ? undefined : await callEvents(exchange, session, wanted);
    // Where neither has it, the session's own answer is given: that of a session of others is the same.
    const stream = elsewhere ?? unwrap(ran);
    if (!wantsSocket(headers)) return stream;
    return eventSocketResponse(stream, { subprotocol, isLast: isEnd });
  },
});

function isEnd(data: unknown): boolean {
  return StreamEventSchema.safeParse(data).data?.event === 'end';
}

function lastEventIdOf(header: string | null, executionId: string): string | null {
  if (header === null || header === '') return null;
  const cursor = parseCursor(header);
  if (cursor === undefined) {
    throw invalid([{ path: 'header.Last-Event-ID', expected: 'the id of an event of this stream' }]);
  }
  if (cursor.executionId !== executionId) throw notFound('Last-Event-ID is of no stream of yours');
  return header;
}

const getReceipt = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/executions/{execution_id}/receipt',
  operationId: 'getReceipt',
  summary: 'The signed receipt of an execution that ended',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'A DSSE envelope', content: { 'application/json': EnvelopeSchema } } },
  errors: ['not_found', 'receipt_pending'],
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    const executionId = executionIdOf(params.execution_id);
    return reply(200, unwrap(await session.call((stub) => stub.receipt(session.caller, executionId), SAFE)));
  },
});

const DEFAULT_EXPORTED_RECEIPTS = 1_000;
/** About ten megabytes. */
const MAX_EXPORTED_RECEIPTS = 4_000;

const exportReceipts = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/receipts',
  operationId: 'exportReceipts',
  summary:
    'The receipts of a session in order, those of hosts and those of the edge, with the public keys that verify them',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    after: z.coerce.number().int().min(0).default(0).describe('`next_after` of the answer before.'),
    edge_after: z.coerce
      .number()
      .int()
      .min(0)
      .default(0)
      .describe('`next_edge_after` of the answer before. Of a chain that is at its end: its length.'),
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(MAX_EXPORTED_RECEIPTS)
      .default(DEFAULT_EXPORTED_RECEIPTS)
      .describe('Receipts of each chain in one answer.'),
  }),
  answers: {
    200: { description: 'The chain, or a part of it', content: { 'application/json': ReceiptExportSchema } },
  },
  errors: ['not_found'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, await receiptsOf(exchange.env, session, query));
  },
});

const writeStdin = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/executions/{execution_id}/stdin',
  operationId: 'writeStdin',
  summary: 'Write to the standard input of a running execution; needs the scope of its tool',
  access: { kind: 'tenant', anyScope: TOOL_SCOPES },
  query: StdinQuerySchema,
  raw: rawStdin(MAX_STDIN_BYTES),
  answers: { 204: { description: 'The bytes are on their way' } },
  errors: [
    'not_found',
    'quota_exceeded',
    'policy_refused',
    'execution_not_running',
    'session_not_running',
    'queue_full',
    'host_unresponsive',
  ],
  handle: async (exchange, { params, query, raw }) => {
    const session = await ownSession(exchange, params.session_id);
    const executionId = executionIdOf(params.execution_id);
    const { bytes, eof } = stdinOf(raw, query, MAX_STDIN_BYTES);
    const tool = unwrap(await session.call((stub) => stub.toolOf(session.caller, executionId), SAFE));
    requireScopes(exchange.principal, [scopeOfTool(tool)], exchange.configuration);
    requireInput(exchange.principal, tool);
    unwrap(await session.call((stub) => stub.stdin(session.caller, executionId, bytes, eof), UNSAFE));
    return emptyReply();
  },
});

/** What a program reads is no argument that could be looked at. */
function requireInput(principal: TenantPrincipal, tool: string): void {
  const name = ToolNameSchema.safeParse(tool);
  if (name.success) requireWholly(principal, name.data);
}

function scopeOfTool(tool: string): string {
  const name = ToolNameSchema.safeParse(tool);
  return name.success ? BUILT_IN_TOOLS[name.data].scope : `tools:${tool}`;
}

const InterruptSchema = z.strictObject({ execution_id: ExecutionIdSchema.optional() });
export const InterruptedSchema = z.object({ execution_id: ExecutionIdSchema.nullable() });

const interrupt = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/interrupt',
  operationId: 'interrupt',
  summary: 'Stop one execution, or what runs; the session lives on',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  body: InterruptSchema,
  answers: {
    200: {
      description: 'What was asked to stop; null when nothing ran',
      content: { 'application/json': InterruptedSchema },
    },
  },
  errors: ['not_found', 'execution_not_running', 'host_unresponsive'],
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await stopExecution(exchange, session, body.execution_id ?? null)));
  },
});

export const executionRoutes = [
  listExecutions,
  getExecution,
  streamExecution,
  getReceipt,
  exportReceipts,
  writeStdin,
  interrupt,
];
