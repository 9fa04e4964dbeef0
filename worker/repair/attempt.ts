/** One attempt: a call like any other, of the session's own kernel. */
import * as z from 'zod';
import { sha256Hex } from '../../shared/digest.ts';
import { ERRORS } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { type RepairAttempt, RepairAttemptSchema } from '../../shared/repair.ts';
import { acceptCall, attendedCall, awaitCall } from '../calls/attended-call.ts';
import { sessionOf } from '../calls/own-session.ts';
import { admitOwner, ownersExchange, type RunSurroundings } from '../engine/owner.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import type { RepairPlan } from '../objects/repair/port.ts';
import { resolveCall } from '../tools/resolve-call.ts';
import { errorLine, lastLines } from './judge.ts';

export const TriedSchema = z.object({ attempt: RepairAttemptSchema, lines: z.string() });
export type Tried = z.infer<typeof TriedSchema>;

export async function attemptCode(input: {
  surroundings: RunSurroundings;
  plan: RepairPlan;
  attempt: number;
  code: string;
  note: (attempt: RepairAttempt) => Promise<boolean>;
}): Promise<Tried> {
  const { code, attempt } = input;
  const entry = { attempt, code, diff: null, rolled_back: false };
  try {
    const execution = await callOnce(input, (begun) =>
      input.note({ ...entry, execution_id: begun.execution_id, status: begun.status, error: null }),
    );
    const error = execution.status === 'succeeded' ? null : errorLine(execution) || execution.reason;
    const tried = { ...entry, execution_id: execution.execution_id, status: execution.status, error };
    return { attempt: tried, lines: lastLines(execution) };
  } catch (error: unknown) {
    // What may be otherwise in a moment is left to the engine, which makes the step again.
    if (!(error instanceof Refusal) || ERRORS[error.failure.code].retryable) throw error;
    const said = `${error.failure.code}: ${error.failure.detail}`;
    return { attempt: { ...entry, execution_id: null, status: 'refused', error: said }, lines: '' };
  }
}

async function callOnce(
  { surroundings, plan, attempt, code }: Parameters<typeof attemptCode>[0],
  onBegun: (execution: Execution) => Promise<unknown>,
): Promise<Execution> {
  await admitOwner(surroundings.env, plan.owner);
  const exchange = ownersExchange(surroundings, plan.owner);
  const { language, timeout_ms } = plan.request;
  const resolved = await resolveCall(exchange, { tool_name: language, arguments: { code }, timeout_ms });
  const key = await sha256Hex(JSON.stringify(['repair', plan.repairRunId, attempt]));
  const call = attendedCall(exchange, sessionOf(exchange, plan.sessionId), {
    body: resolved.call,
    idempotency: { key, fingerprint: key },
    resolved,
  });
  const begun = unwrap(await acceptCall(call));
  if (begun !== null) await onBegun(begun);
  return unwrap(await awaitCall(call));
}
