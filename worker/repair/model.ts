/** The question to the model: a call of a registered HTTP tool like any other, kept in the session as one. */
import * as z from 'zod';
import { sha256Hex } from '../../shared/digest.ts';
import { failure } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { admitOwner, ownersExchange, type RunSurroundings } from '../engine/owner.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import type { RepairPlan } from '../objects/repair/port.ts';
import { edgeRun } from '../routes/edge-call.ts';
import { sessionOf } from '../routes/own-session.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import { codeIn } from './answer.ts';
import { answerText, type Failed, requestBody } from './prompt.ts';

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
  const { model } = plan.request;
  const { performance, finish } = await resolveCall(exchange, {
    tool_name: model.tool_name,
    arguments: requestBody(plan.request, failed),
    timeout_ms: model.timeout_ms,
  });
  if (performance === undefined) throw new Refusal(failure('tool_unavailable', 'the tool is no model'));
  const key = await sha256Hex(JSON.stringify(['repair model', plan.repairRunId, failed.length, tried]));
  const session = sessionOf(exchange, plan.sessionId);
  const idempotency = { key, fingerprint: key };
  return unwrap(await edgeRun(session, { performance, finish, idempotency }).end());
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
