/** What a program may use: checked before a call is made, and before its result goes in. */
import { type CallError, MAX_CALL_RESULT_BYTES } from '../../../../shared/code-mode.ts';
import type { CallRow, ProgramRow, ProgramStore } from './store.ts';

/** Why nothing of the call is looked at, nor kept. */
export function spentBefore(
  { bytes, facts }: ProgramRow,
  { call, bytes: argumentsBytes }: { call: number; bytes: number },
): CallError | undefined {
  const { limits } = facts;
  if (call > limits.calls) return exceeded('calls', limits.calls);
  return bytes + argumentsBytes > limits.bytes ? exceeded('bytes', limits.bytes) : undefined;
}

/** Why the call is not made; one that changes something is charged as such. */
export function chargeCall(
  store: ProgramStore,
  n: number,
  { row, writes }: { row: CallRow; writes: boolean },
): CallError | undefined {
  const program = store.find(n);
  // A call that is made again, or was allowed meanwhile, was charged before.
  if (program === undefined || row.status !== 'received' || row.approval !== null) return undefined;
  const { limits } = program.facts;
  if (writes && program.writes >= limits.writes) return exceeded('writes', limits.writes);
  if (writes) store.use(n, { calls: 0, writes: 1, bytes: 0 });
  return undefined;
}

/** Why the result does not go in. It is charged either way. */
export function chargeResult(store: ProgramStore, n: number, resultBytes: number): CallError | undefined {
  const program = store.find(n);
  store.use(n, { calls: 0, writes: 0, bytes: resultBytes });
  if (resultBytes > MAX_CALL_RESULT_BYTES) {
    const message = `the result has ${resultBytes} bytes as JSON, at most ${MAX_CALL_RESULT_BYTES} enter the sandbox`;
    return { code: 'result_too_large', message };
  }
  if (program === undefined || program.bytes + resultBytes <= program.facts.limits.bytes) return undefined;
  return exceeded('bytes', program.facts.limits.bytes);
}

function exceeded(budget: string, limit: number): CallError {
  return { code: 'budget_exceeded', message: `the program may use ${limit} ${budget}, and has` };
}
