/** A call of the gateway is about to be made: it is written, it counts as activity, and its end may have to be told. */
import type { Outcome } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { SessionEvents } from '../events/events.ts';
import type { Executions } from '../executions/executions.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { EdgeCall } from './edge-call.ts';
import type { EdgeCalls } from './edge-calls.ts';

export function beginEdgeCall(
  session: { row: SessionRow; edgeCalls: EdgeCalls; executions: Executions; events: SessionEvents },
  call: EdgeCall,
  { isDetached }: { isDetached: boolean },
): Outcome<Execution | null> {
  const { row, edgeCalls, executions, events } = session;
  const nowMs = Date.now();
  row.patch({ lastActivityAtMs: nowMs });
  const begun = edgeCalls.begin(call, { afterN: executions.total, nowMs, isDetached });
  const isFirst = begun.ok && begun.value === null;
  if (isFirst) events.wantsCallback(call.execution.execution_id, call.callback ?? null);
  return begun;
}
