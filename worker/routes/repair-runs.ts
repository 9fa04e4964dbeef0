/** Self-healing runs of a session: start, read, cancel. */
import { isRepairRunIdOf, isSessionIdOf, newRepairRunId } from '../../shared/ids.ts';
import { type CreateRepairRun, CreateRepairRunSchema, RepairRunSchema } from '../../shared/repair.ts';
import { sealedCallback } from '../calls/callback.ts';
import { callerOf, notFound, ownSession } from '../calls/own-session.ts';
import { reservedId } from '../calls/reserved-id.ts';
import { ownerOf } from '../engine/owner.ts';
import { invalid } from '../middleware/body.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { type Refusal, unwrap } from '../middleware/refusal.ts';
import { repairCalls, SAFE } from '../objects/object-calls.ts';
import { offeredModels } from '../repair/model.ts';
import { requestBody } from '../repair/prompt.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { checkStored, resolveCall, storedTools } from '../tools/resolve-call.ts';
import { IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

const RUN = { description: 'The run', content: { 'application/json': RepairRunSchema } };

const createRepairRun = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/repair_runs',
  operationId: 'createRepairRun',
  summary: 'Run code, and let a model mend it where it fails; what failed attempts did is undone',
  access: { kind: 'tenant', scopes: ['sessions:write'], anyScope: ['tools:python', 'tools:node'] },
  headers: IDEMPOTENCY_HEADER_DOC,
  body: CreateRepairRunSchema,
  answers: {
    202: { ...RUN, description: 'It runs; `Location` is where it can be read', headers: ['Location'] },
  },
  errors: [
    'not_found',
    'policy_refused',
    'tool_not_found',
    'tool_unavailable',
    'approval_required',
    'session_not_running',
    'session_failed',
    'session_deleted',
    'idempotency_conflict',
    'idempotency_in_progress',
  ],
  handle: async (exchange, { params, body, raw }) => {
    const session = await ownSession(exchange, params.session_id);
    const { labels } = unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
    await resolveCall(exchange, { tool_name: body.language, arguments: { code: body.code } });
    await requireModel(exchange, body);
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: `POST /v1/sessions/${session.sessionId}/repair_runs`,
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const { callback: given, ...request } = body;
    const callback = await sealedCallback(exchange, given, { isDetached: true });
    const { tagKey } = exchange.configuration;
    const fresh = await newRepairRunId(tagKey, exchange.principal.tenant);
    const repairRunId = await reservedId(exchange, idempotency, fresh);
    const plan = {
      repairRunId,
      sessionId: session.sessionId,
      owner: ownerOf(exchange.principal),
      request,
      labels,
      callback,
    };
    const calls = repairCalls(exchange.env, exchange.principal.tenant, repairRunId);
    const started = unwrap(await calls((stub) => stub.start(plan), SAFE));
    return reply(202, started, {
      Location: `/v1/sessions/${session.sessionId}/repair_runs/${repairRunId}`,
    });
  },
});

/** It is called like any tool, so what its rules refuse is refused at once. */
async function requireModel(exchange: Exchange<'tenant'>, request: CreateRepairRun): Promise<void> {
  const { tool_name, name } = request.model;
  if (tool_name === undefined) {
    offeredModels(exchange, name);
    return;
  }
  const [stored] = await storedTools(exchange, [tool_name], 'name');
  if (stored?.tool.kind !== 'http' || stored.tool.method !== 'POST') {
    throw invalid([
      {
        path: 'body.model.tool_name',
        expected: 'a registered `http` tool of the method POST that you may call',
        received: tool_name,
      },
    ]);
  }
  const question = requestBody(request, [{ code: request.code, lines: '' }]);
  checkStored(exchange, { call: { tool_name, arguments: { ...question } }, stored }, { root: 'body.model.' });
}

const getRepairRun = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/repair_runs/{repair_run_id}',
  operationId: 'getRepairRun',
  summary: 'How a repair run stands',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: RUN },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const run = await ownRun(exchange, params);
    const found = unwrap(await run.calls((stub) => stub.describe(run.caller), SAFE));
    return reply(200, requireOf(params.session_id, found));
  },
});

const cancelRepairRun = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/repair_runs/{repair_run_id}/cancel',
  operationId: 'cancelRepairRun',
  summary: 'Stop a repair run and the attempt that it makes; one that has ended stays as it is',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  answers: { 200: RUN },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const run = await ownRun(exchange, params);
    requireOf(params.session_id, unwrap(await run.calls((stub) => stub.describe(run.caller), SAFE)));
    return reply(200, unwrap(await run.calls((stub) => stub.cancel(run.caller), SAFE)));
  },
});

async function ownRun(exchange: Exchange<'tenant'>, params: { session_id: string; repair_run_id: string }) {
  const caller = callerOf(exchange);
  // A session of others answers like one's own without the run.
  if (!(await isSessionIdOf(exchange.configuration.tagKey, caller.tenant, params.session_id)))
    throw missing();
  const { tagKey } = exchange.configuration;
  if (!(await isRepairRunIdOf(tagKey, caller.tenant, params.repair_run_id))) throw missing();
  return { caller, calls: repairCalls(exchange.env, caller.tenant, params.repair_run_id) };
}

function requireOf<Run extends { session_id: string }>(sessionId: string, run: Run): Run {
  if (run.session_id !== sessionId) throw missing();
  return run;
}

function missing(): Refusal {
  return notFound('no such repair run, or not yours');
}

export const repairRunRoutes = [createRepairRun, getRepairRun, cancelRepairRun];
