/** Calls of tasks that may wait for days: a step looks for some minutes whether there is an end, and then another does. */
import { success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { endOfApproved } from '../calls/approved-call.ts';
import { type OwnSession, sessionOf } from '../calls/own-session.ts';
import { ownersExchange } from '../engine/owner.ts';
import { unwrap } from '../middleware/refusal.ts';
import { approvalCalls, SAFE } from '../objects/object-calls.ts';
import { type Attempt, type AwaitedCall, type MadeCall, madeCall, outOfTime } from './awaited-call.ts';
import { callResult } from './call-result.ts';
import type { RunContext } from './run-context.ts';

/** A step that looks for as long as a run may take in all would be lost with each restart; one a second would be many. */
const LOOK_MS = 600_000;
/** Of such a step, beside the time of the call. */
export const LOOK_STEP_MS = LOOK_MS + 120_000;

export class Looks {
  readonly #context: RunContext;

  constructor(context: RunContext) {
    this.#context = context;
  }

  /** The end of the call; null where there is none yet. */
  async at(at: Attempt, call: AwaitedCall, sessionId: string): Promise<MadeCall | null> {
    const { plan, record } = this.#context;
    const session = sessionOf(ownersExchange(this.#context, plan.owner), sessionId);
    const leftMs = plan.endsBy - Date.now();
    if (leftMs <= 0) {
      await this.#stop(session, call);
      return outOfTime();
    }
    const lookMs = Math.min(LOOK_MS, leftMs);
    const execution =
      call.awaited === 'program'
        ? await programEnd(session, call, lookMs)
        : await this.#decided(session, call, lookMs);
    if (execution === null || !isTerminal(execution.status)) return null;
    const { execution_id, session_id, status } = execution;
    await record((stub) => stub.callBegun({ ...at, execution_id, session_id, status }));
    return madeCall(callResult(execution), { isShortened: call.is_shortened });
  }

  /** What became of a call that had to be allowed first. */
  async #decided(session: OwnSession, call: AwaitedCall, lookMs: number): Promise<Execution | null> {
    const place = { sessionId: session.sessionId, executionId: call.execution_id };
    const approvals = approvalCalls(this.#context.env, session.caller.tenant);
    const seen = unwrap(await approvals((stub) => stub.settled(session.caller, place, lookMs), SAFE));
    if (seen.status === 'waiting' || isTerminal(seen.status)) return seen;
    return unwrap(await endOfApproved(session, call.execution_id, { timeoutMs: call.timeout_ms }));
  }

  async #stop(session: OwnSession, call: AwaitedCall): Promise<void> {
    const { caller, sessionId } = session;
    const stopped = await session.call((stub) => stub.interrupt(caller, call.execution_id), SAFE);
    if (stopped.ok || stopped.code !== 'not_found') return;
    const place = { sessionId, executionId: call.execution_id };
    await approvalCalls(this.#context.env, caller.tenant)((stub) => stub.cancel(caller, place), SAFE);
  }
}

async function programEnd(session: OwnSession, call: AwaitedCall, lookMs: number): Promise<Execution | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), lookMs);
  });
  const ended = session.call((stub) => stub.wait(session.caller, call.execution_id), SAFE);
  const first = await Promise.race([ended, late.then(() => success(null))]);
  clearTimeout(timer ?? null);
  return unwrap<Execution | null>(first);
}
