/** Execute: in a session, or in one of its own; as one JSON answer, as a stream, or detached. */

import type * as z from 'zod';
import { type Outcome, success } from '../../shared/errors.ts';
import { type Execute, ExecuteSchema, type Execution, ExecutionSchema } from '../../shared/execution.ts';
import type { Scope } from '../../shared/scopes.ts';
import { CreateSessionSchema } from '../../shared/session.ts';
import { BUILT_IN_TOOLS } from '../../shared/tool.ts';
import { invalid } from '../middleware/body.ts';
import { type Idempotency, idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { checkCall } from '../tools/check-call.ts';
import { StreamTextSchema } from './event-stream-text.ts';
import { type OwnSession, ownSession } from './own-session.ts';
import { callInOwnSession } from './own-session-call.ts';
import { reply } from './reply.ts';
import { defineRoute, type Exchange } from './route.ts';
import { EVENT_STREAM_MEDIA_TYPE, streamExecute } from './session-stream.ts';
import { CREATE_ERRORS, IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

export const TOOL_SCOPES: readonly Scope[] = Object.values(BUILT_IN_TOOLS).map(({ scope }) => scope);

export const EXECUTE_ERRORS = [
  'tool_not_found',
  'idempotency_conflict',
  'idempotency_in_progress',
  'queue_full',
  'quota_exceeded',
  'session_not_running',
  'session_deleted',
  'host_unresponsive',
  'host_lost',
] as const;

const EXECUTED = {
  description: 'The execution, ended; a program that failed is an answer too: see `status`',
  content: { 'application/json': ExecutionSchema, [EVENT_STREAM_MEDIA_TYPE]: StreamTextSchema },
};

const executeInSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/execute',
  operationId: 'execute',
  summary: 'Call a tool in a session',
  access: { kind: 'tenant', anyScope: TOOL_SCOPES },
  headers: { ...IDEMPOTENCY_HEADER_DOC, Accept: '`text/event-stream` for a stream of events.' },
  body: ExecuteSchema,
  answers: {
    200: EXECUTED,
    202: {
      description: 'Accepted; `Location` is where it can be read',
      content: { 'application/json': ExecutionSchema },
      headers: ['Location'],
    },
  },
  errors: ['not_found', ...EXECUTE_ERRORS],
  handle: async (exchange, { params, body, raw }) => {
    const call = checkCall(exchange, body);
    const session = await ownSession(exchange, params.session_id);
    const input = {
      body: withMode(exchange.request, call),
      idempotency: await idempotencyOf({
        header: exchange.request.headers.get('Idempotency-Key'),
        route: `POST /v1/sessions/${session.sessionId}/execute`,
        subject: exchange.principal.subject,
        body: raw.bytes,
      }),
    };
    return unwrap(await runIn(exchange, session, input));
  },
});

/** A call and the session that it gets: it ends with the call, so there is nothing to detach to. */
const OneCallSchema = ExecuteSchema.omit({ detach: true }).extend(
  CreateSessionSchema.pick({ image: true, limits: true, env: true, pool: true }).shape,
);

const executeOnce = defineRoute({
  method: 'POST',
  path: '/v1/execute',
  operationId: 'executeOnce',
  summary: 'Call a tool in a session of its own that ends with the call',
  access: { kind: 'tenant', scopes: ['sessions:write'], anyScope: TOOL_SCOPES },
  headers: { ...IDEMPOTENCY_HEADER_DOC, Accept: '`text/event-stream` for a stream of events.' },
  body: OneCallSchema,
  answers: { 200: EXECUTED },
  errors: [...EXECUTE_ERRORS, ...CREATE_ERRORS],
  handle: async (exchange, { body, raw }) => {
    const call = checkCall(exchange, body, { scopes: ['sessions:write'] });
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: 'POST /v1/execute',
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const answer = runOnce(exchange, call, idempotency);
    // A client that goes away does not stop it half-way between the session and its call.
    exchange.waitUntil(answer.catch(() => undefined));
    return unwrap(await answer);
  },
});

function runOnce(
  exchange: Exchange<'tenant'>,
  body: z.infer<typeof OneCallSchema>,
  idempotency: Idempotency | null,
): Promise<Outcome<Response>> {
  const { image, limits, env, pool, ...call } = body;
  const input = { body: withMode(exchange.request, { ...call, detach: false }), idempotency };
  return callInOwnSession(exchange, { place: { image, limits, env, pool }, idempotency }, (session) =>
    runIn(exchange, session, input),
  );
}

async function runIn(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  input: { body: Execute; idempotency: Idempotency | null },
): Promise<Outcome<Response>> {
  const whole = {
    ...input,
    caller: session.caller,
    requestId: exchange.requestId,
    admittedMs: exchange.receivedMs,
  };
  if (input.body.stream) return streamExecute(session, whole);
  // With a key a repeated call finds the first one, so it may be repeated after a reset.
  const executed = await session.call((stub) => stub.execute(whole), { safe: false });
  if (!executed.ok) return executed;
  return success(executionReply(executed.value, input.body.detach));
}

function executionReply(execution: Execution, detached: boolean): Response {
  if (!detached) return reply(200, execution);
  const location = `/v1/sessions/${execution.session_id}/executions/${execution.execution_id}`;
  return reply(202, execution, { Location: location });
}

/** How the caller wants the answer: the body says it, or the `Accept` header asks for events. */
function withMode(request: Request, call: Execute): Execute {
  if (call.detach) {
    if (call.stream) throw invalid([{ path: 'body.detach', expected: 'false together with stream' }]);
    return call;
  }
  return { ...call, stream: call.stream || acceptsEvents(request.headers.get('Accept')) };
}

function acceptsEvents(accept: string | null): boolean {
  return (accept ?? '')
    .toLowerCase()
    .split(',')
    .map((range) => range.split(';').map((part) => part.trim()))
    .some(([type, ...parameters]) => {
      return type === EVENT_STREAM_MEDIA_TYPE && !parameters.some((part) => /^q=0(\.0*)?$/.test(part));
    });
}

export const executeRoutes = [executeInSession, executeOnce];
