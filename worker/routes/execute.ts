/** Execute: in a session, or in one of its own; as one JSON answer, as a stream, or detached. */

import type * as z from 'zod';
import type { SealedCallback } from '../../shared/callback.ts';
import { type Outcome, success } from '../../shared/errors.ts';
import { type Execute, ExecuteSchema, type Execution, ExecutionSchema } from '../../shared/execution.ts';
import { newId } from '../../shared/ids.ts';
import type { Scope } from '../../shared/scopes.ts';
import { CreateSessionSchema } from '../../shared/session.ts';
import { BUILT_IN_TOOLS } from '../../shared/tool.ts';
import { askApproval } from '../calls/approved-call.ts';
import { sealedCallback } from '../calls/callback.ts';
import { edgeRun } from '../calls/edge-call.ts';
import { edgeStream, ProgressFeed } from '../calls/edge-stream.ts';
import { StreamTextSchema } from '../calls/event-stream-text.ts';
import { loneCall } from '../calls/lone-call.ts';
import { type OwnSession, ownSession } from '../calls/own-session.ts';
import { callInOwnSession } from '../calls/own-session-call.ts';
import { streamExecute } from '../calls/session-stream.ts';
import { ownerOf } from '../engine/owner.ts';
import { EVENT_STREAM_MEDIA_TYPE, invalid } from '../middleware/body.ts';
import { type Idempotency, idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { type ResolvedCall, resolveCall } from '../tools/resolve-call.ts';
import { CREATE_ERRORS, IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

export const TOOL_SCOPES: readonly Scope[] = Object.values(BUILT_IN_TOOLS).map(({ scope }) => scope);

export const EXECUTE_ERRORS = [
  'policy_refused',
  'tool_not_found',
  'tool_unavailable',
  'approval_required',
  'idempotency_conflict',
  'idempotency_in_progress',
  'queue_full',
  'quota_exceeded',
  'budget_exhausted',
  'session_not_running',
  'session_failed',
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
      description: 'Accepted, or waiting for an approval; `Location` is where it can be read',
      content: { 'application/json': ExecutionSchema },
      headers: ['Location'],
    },
  },
  errors: ['not_found', ...EXECUTE_ERRORS],
  handle: async (exchange, { params, body, raw }) => {
    const resolved = await resolveCall(exchange, body, { approval: 'asked' });
    const session = await ownSession(exchange, params.session_id);
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: `POST /v1/sessions/${session.sessionId}/execute`,
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const callback = await sealedCallback(exchange, body.callback, { isDetached: body.detach });
    if (resolved.toApprove !== undefined) {
      const about = { call: resolved.toApprove, idempotency, claims: false, callback };
      return executionReply(unwrap(await askApproval(exchange, session, about)), true);
    }
    const { callback: _, ...call } = resolved.call;
    const input = { resolved, body: withMode(exchange.request, call), idempotency, callback };
    return unwrap(await runIn(exchange, session, input));
  },
});

/** A call and the session that it gets: it ends with the call, so there is nothing to detach to. */
const OneCallSchema = ExecuteSchema.omit({ detach: true, rollback: true, callback: true }).extend(
  CreateSessionSchema.pick({ image: true, limits: true, env: true, network: true, pool: true, region: true })
    .shape,
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
    const resolved = await resolveCall(exchange, body, { scopes: ['sessions:write'] });
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: 'POST /v1/execute',
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const answer = runOnce(exchange, resolved, idempotency);
    // A client that goes away does not stop it half-way between the session and its call.
    exchange.waitUntil(answer.catch(() => undefined));
    return unwrap(await answer);
  },
});

async function runOnce(
  exchange: Exchange<'tenant'>,
  resolved: ResolvedCall<z.infer<typeof OneCallSchema>>,
  idempotency: Idempotency | null,
): Promise<Outcome<Response>> {
  const { image, limits, env, network, pool, region, ...asked } = resolved.call;
  const body = withMode(exchange.request, { ...asked, detach: false });
  const input = { resolved, body, idempotency };
  if (resolved.performance !== undefined) {
    const { performance, finish } = resolved;
    // With a key whoever asks again gets what came of it, so a client that goes away stops nothing.
    const signal = idempotency === null ? exchange.request.signal : new AbortController().signal;
    const call = await loneCall(exchange, { performance, finish, idempotency });
    if (!body.stream) return success(reply(200, await call.run(signal)));
    const feed = new ProgressFeed();
    const ended = endOf(exchange, call.run(signal, feed.report));
    return success(edgeStream(call.execution, { ended, feed }));
  }
  return callInOwnSession(
    exchange,
    { place: { image, limits, env, network, pool, region }, idempotency },
    (session) => runIn(exchange, session, input),
  );
}

interface RunInput {
  resolved: Pick<ResolvedCall<Execute>, 'calledAs' | 'constraints' | 'performance' | 'finish'>;
  body: Execute;
  idempotency: Idempotency | null;
  callback?: SealedCallback | null;
}

async function runIn(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  { resolved, ...input }: RunInput,
): Promise<Outcome<Response>> {
  if (resolved.performance !== undefined) {
    if (input.body.detach) return detachedCall(exchange, session, input);
    const { performance, finish } = resolved;
    const { idempotency } = input;
    if (input.body.stream) {
      const feed = new ProgressFeed();
      const run = edgeRun(session, { performance, finish, idempotency, onProgress: feed.report });
      const begun = await run.begun();
      if (!begun.ok) return begun;
      const ended = run.end().then((outcome) => (outcome.ok ? outcome.value : undefined));
      return success(edgeStream(begun.value, { ended: endOf(exchange, ended), feed }));
    }
    const running = edgeRun(session, { performance, finish, idempotency }).end();
    // A client that goes away does not keep the end from being written.
    exchange.waitUntil(running.catch(() => undefined));
    const ended = await running;
    return ended.ok ? success(reply(200, ended.value)) : ended;
  }
  const whole = {
    ...input,
    calledAs: resolved.calledAs,
    constraints: resolved.constraints,
    caller: session.caller,
    requestId: exchange.requestId,
    admittedMs: exchange.receivedMs,
  };
  if (input.body.stream) return streamExecute(session, whole);
  // With a key a repeated call finds the first one, so it may be repeated after a reset.
  const executed = await session.call((stub) => stub.execute(whole), { safe: false });
  if (!executed.ok) return executed;
  const { timings_ms } = executed.value;
  if (timings_ms !== null) exchange.waitedElsewhere?.(timings_ms.place + timings_ms.exec);
  const execution = input.body.detach ? executed.value : resolved.finish(executed.value);
  return success(executionReply(execution, input.body.detach));
}

/** Made by the session itself: nothing of the request is there any more when it ends. */
async function detachedCall(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  { body, idempotency, callback = null }: Omit<RunInput, 'resolved'>,
): Promise<Outcome<Response>> {
  const { tool_name, arguments: args, timeout_ms } = body;
  const call = {
    executionId: newId('exe'),
    sessionId: session.sessionId,
    owner: ownerOf(exchange.principal),
    asked: { tool_name, arguments: args, timeout_ms },
    idempotency,
    callback,
    receivedMs: exchange.receivedMs,
  };
  const made = await session.call((stub) => stub.makeEdgeCall(session.caller, call), UNSAFE);
  return made.ok ? success(executionReply(made.value, true)) : made;
}

/** A client that goes away does not keep the end from being written. */
function endOf(
  { waitUntil }: Exchange<'tenant'>,
  ended: Promise<Execution | undefined>,
): Promise<Execution | undefined> {
  const end = ended.catch(() => undefined);
  waitUntil(end);
  return end;
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

export function acceptsEvents(accept: string | null): boolean {
  return (accept ?? '')
    .toLowerCase()
    .split(',')
    .map((range) => range.split(';').map((part) => part.trim()))
    .some(([type, ...parameters]) => {
      return type === EVENT_STREAM_MEDIA_TYPE && !parameters.some((part) => /^q=0(\.0*)?$/.test(part));
    });
}

export const executeRoutes = [executeInSession, executeOnce];
