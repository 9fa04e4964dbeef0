/** Executions as an answer has them, without a session that ran them. */
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { edgeExecutionBegun } from '../../../worker/tools/edge-execution.ts';

const AT_MS = Date.UTC(2026, 0, 1);

/** One of `shell` that succeeded and said nothing, but for the facts that are given. */
export function executionOf(facts: Partial<Execution> = {}): Execution {
  const sessionId = `ses_${'a'.repeat(38)}`;
  const call = {
    sessionId,
    executionId: newId('exe'),
    toolName: 'shell',
    receivedMs: AT_MS,
    startedMs: AT_MS,
  };
  const begun = edgeExecutionBegun(call);
  return ExecutionSchema.parse({
    ...begun,
    status: 'succeeded',
    exit_code: 0,
    finished_at: begun.started_at,
    duration_ms: 1,
    ...facts,
  });
}
