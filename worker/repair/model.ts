/** The question to the model: a call of a registered HTTP tool like any other, kept in the session as one. */
import * as z from 'zod';
import { sha256Hex } from '../../shared/digest.ts';
import { failure } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { type EdgeRunInput, edgeRun } from '../calls/edge-call.ts';
import { sessionOf } from '../calls/own-session.ts';
import type { RepairModels } from '../configuration.ts';
import { admitOwner, ownersExchange, type RunSurroundings } from '../engine/owner.ts';
import { invalid } from '../middleware/body.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import type { RepairPlan } from '../objects/repair/port.ts';
import type { Exchange } from '../routing/route.ts';
import { isWithin } from '../tools/policy.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import { codeIn } from './answer.ts';
import { answerText, type Failed, requestBody } from './prompt.ts';
import { WORKERS_AI_GUARD, workersAiPerformance } from './workers-ai.ts';

export const AnsweredSchema = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), code: z.string().nullable(), text: z.string() }),
  z.object({ ok: z.literal(false), detail: z.string() }),
]);
type Answered = z.infer<typeof AnsweredSchema>;

const MAX_TEXT_CHARACTERS = 2_000;
/** A model that is down or busy is asked again after these. */
const PAUSES_MS = [1_000, 4_000];

export async function askModel(
  surroundings: RunSurroundings,
  plan: RepairPlan,
  failed: readonly Failed[],
): Promise<Answered> {
  for (const [tried, pauseMs] of [...PAUSES_MS, null].entries()) {
    const answer = answerOf(await askOnce(surroundings, { plan, failed, tried }));
    if (answer.ok || answer.isFinal || pauseMs === null) {
      return answer.ok ? answer : { ok: false, detail: answer.detail };
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  return { ok: false, detail: 'the model did not answer' };
}

/** Whatever the tool's rules are, they hold here too: approval, callers, schema, address. */
async function askOnce(
  surroundings: RunSurroundings,
  { plan, failed, tried }: { plan: RepairPlan; failed: readonly Failed[]; tried: number },
): Promise<Execution> {
  await admitOwner(surroundings.env, plan.owner);
  const exchange = ownersExchange(surroundings, plan.owner);
  const { performance, finish } = await callOf(exchange, plan.request, failed);
  const key = await sha256Hex(JSON.stringify(['repair model', plan.repairRunId, failed.length, tried]));
  const session = sessionOf(exchange, plan.sessionId);
  const idempotency = { key, fingerprint: key };
  return unwrap(await edgeRun(session, { performance, finish, idempotency }).end());
}

async function callOf(
  exchange: Exchange<'tenant'>,
  request: RepairPlan['request'],
  failed: readonly Failed[],
): Promise<Pick<EdgeRunInput, 'performance' | 'finish'>> {
  const { tool_name, name, timeout_ms } = request.model;
  const question = requestBody(request, failed);
  if (tool_name === undefined) {
    const performance = workersAiPerformance(exchange, offeredModels(exchange, name), {
      question,
      timeoutMs: timeout_ms,
    });
    return { performance, finish: (execution) => execution };
  }
  const { performance, finish } = await resolveCall(exchange, {
    tool_name,
    arguments: { ...question },
    timeout_ms,
  });
  if (performance === undefined) throw new Refusal(failure('tool_unavailable', 'the tool is no model'));
  return { performance, finish };
}

/** The models of Workers AI, where this is one of them and the caller may ask it. */
export function offeredModels(
  { configuration, principal }: Pick<Exchange<'tenant'>, 'configuration' | 'principal'>,
  name: string,
): RepairModels {
  if (!isWithin(principal.toolPolicy, WORKERS_AI_GUARD)) {
    throw new Refusal(failure('policy_refused', `the tool policy leaves out ${WORKERS_AI_GUARD.name}`));
  }
  const { repairModels } = configuration;
  if (repairModels?.names.has(name) === true) return repairModels;
  const names = repairModels === null ? [] : [...repairModels.names];
  const expected =
    names.length === 0 ? 'a model behind a tool: this edge offers none itself' : `one of ${names.join(', ')}`;
  throw invalid([{ path: 'body.model.name', expected, received: name }]);
}

function answerOf(
  execution: Execution,
): Extract<Answered, { ok: true }> | { ok: false; detail: string; isFinal: boolean } {
  if (execution.status !== 'succeeded') {
    const detail = execution.error?.message ?? `the model's answer ended as ${execution.status}`;
    return { ok: false, detail, isFinal: execution.error?.name === 'AddressRefused' };
  }
  const text = answerText(execution.structured);
  if (text === undefined) {
    return { ok: false, detail: 'the answer of the model is no chat completion', isFinal: true };
  }
  return { ok: true, code: codeIn(text) ?? null, text: text.slice(0, MAX_TEXT_CHARACTERS) };
}
