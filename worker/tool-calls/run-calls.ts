/** The calls of one message, in their order: those of one tool without gaps, programs one by one. */
import type { Program } from '../../shared/code-mode.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { approvedOutcome } from '../calls/approved-call.ts';
import { acceptCall, attendedCall, awaitCall } from '../calls/attended-call.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { type CallEnd, type CallsRun, forModel } from './calls-run.ts';
import { type CheckedCall, isProgram } from './prepare.ts';
import { runProgram } from './run-program.ts';

/** Resolves at its end. */
type TakenCall = () => Promise<Outcome<CallEnd>>;

/**
 * Calls of one tool are accepted one after the other before any is waited for, so there are no gaps between them; another
 * tool would run beside them, so it comes when they have ended. So does a program, behind which nothing runs while it waits.
 */
export async function runCalls(run: CallsRun): Promise<Outcome<CallEnd>[]> {
  const { session, prepared } = run;
  if (!prepared.some(({ call }) => call.ok)) {
    // Somebody else's session answers like a missing one also where nothing would run.
    unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
  }
  const accepted: Outcome<TakenCall>[] = [];
  let before: { tool: string; calls: TakenCall[] } = { tool: '', calls: [] };
  let waiting: Program | undefined;
  for (const [index, { call }] of prepared.entries()) {
    if (!call.ok || waiting !== undefined) {
      accepted.push(call.ok ? behind(waiting) : call);
      continue;
    }
    const called = call.value;
    const tool = isProgram(called) ? '' : (ownTool(called) ?? before.tool);
    if (tool !== before.tool || isProgram(called)) {
      await Promise.all(before.calls.map((end) => end()));
      before = { tool, calls: [] };
    }
    if (isProgram(called)) {
      const ended = await runProgram(run, { index, ...called });
      if (ended.ok && !isTerminal(ended.value.program.status)) waiting = ended.value.program;
      accepted.push(success(async () => ended));
      continue;
    }
    const taken = await accept(run, index, called);
    if (taken.ok) before.calls.push(taken.value);
    accepted.push(taken);
  }
  return Promise.all(accepted.map(async (call) => (call.ok ? call.value() : call)));
}

/** None for a call that is made at the edge: it runs beside whatever runs. */
function ownTool({ call, performance }: CheckedCall): string | undefined {
  return performance === undefined ? call.tool_name : undefined;
}

function behind(program: Program | undefined): Outcome<never> {
  return failure(
    'program_waiting',
    `not run: the program ${program?.program_id} of the same message waits; call it when that has ended`,
  );
}

async function accept(
  { exchange, session, keyOf }: CallsRun,
  index: number,
  call: CheckedCall,
): Promise<Outcome<TakenCall>> {
  const { toApprove } = call;
  if (toApprove !== undefined) {
    return success(once(async () => asEnd(await approvedOutcome(exchange, session, toApprove))));
  }
  const attended = attendedCall(exchange, session, {
    body: call.call,
    idempotency: await keyOf(index),
    resolved: call,
  });
  const outcome = forModel(await acceptCall(attended));
  return outcome.ok ? success(once(async () => asEnd(await awaitCall(attended)))) : outcome;
}

function asEnd(outcome: Outcome<Execution>): Outcome<CallEnd> {
  return outcome.ok ? success({ execution: outcome.value }) : outcome;
}

/** However often its end is asked for. */
function once(end: TakenCall): TakenCall {
  let ending: ReturnType<TakenCall> | undefined;
  return () => {
    ending ??= end();
    return ending;
  };
}
