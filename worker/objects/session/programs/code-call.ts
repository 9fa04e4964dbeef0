/** Calls of registered functions by programs: each is an execution of the shell, beside the kernel that the program keeps busy. */
import { ExecuteSchema, type Execution } from '../../../../shared/execution.ts';
import type { CodeCall } from '../../../programs/inner-call.ts';
import { codeAnswer } from '../../../tools/code-cell.ts';
import { type Given, givenBy } from '../../../tools/given.ts';
import type { ExecuteInput } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';

export function codeExecution(
  program: ExecutionRecord,
  { call, executionId, row }: { call: CodeCall; executionId: string; row: SessionRow },
): ExecuteInput {
  const { tenant, subject } = row.record.facts;
  const { command, timeoutMs, calledAs } = call;
  return {
    caller: { tenant, subject },
    body: ExecuteSchema.parse({
      tool_name: 'shell',
      arguments: { command },
      timeout_ms: timeoutMs,
      stdin: false,
      // What the program did meanwhile would be taken back with it.
      rollback: 'never',
    }),
    calledAs,
    idempotency: null,
    requestId: program.requestId,
    executionId,
    parentId: program.executionId,
    admittedMs: Date.now(),
  };
}

/** What the function returned or raised. */
export function givenByCode(execution: Execution, finish: (execution: Execution) => Execution): Given {
  if (execution.truncated && execution.status === 'succeeded') {
    const message = `the tool gave ${execution.stdout_bytes} bytes of JSON, which is too much to enter the program`;
    return { error: { code: 'result_too_large', message } };
  }
  const answer = codeAnswer(execution.stdout);
  if (answer === undefined) return givenBy(withoutAnswer(execution));
  if ('result' in answer) return givenBy(finish({ ...execution, stdout: '', structured: answer.result }));
  return givenBy({ ...execution, stdout: '', error: { ...answer.error, traceback: '' } });
}

/** The interpreter is missing, or was stopped before it had an answer: what it wrote last says why. */
function withoutAnswer(execution: Execution): Execution {
  if (execution.status !== 'succeeded') return { ...execution, stdout: execution.stderr };
  const error = { name: 'NoAnswer', message: 'the tool ended without an answer', traceback: '' };
  return { ...execution, status: 'failed', error };
}
