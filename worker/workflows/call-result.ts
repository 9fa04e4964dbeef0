/** What a call gave, cut to what a step may keep: the whole of it is the execution's, in its session. Pure. */
import type { Failure } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import type { CallResult } from '../../shared/workflow.ts';

/** Of each text; a step keeps at most 1 MiB. */
const MAX_CHARACTERS = 100_000;
const MAX_STRUCTURED_CHARACTERS = 200_000;

export function callResult(execution: Execution): CallResult {
  const { structured, error } = execution;
  return {
    execution_id: execution.execution_id,
    session_id: execution.session_id,
    status: execution.status,
    exit_code: execution.exit_code,
    value: execution.value === null ? null : execution.value.slice(0, MAX_CHARACTERS),
    structured: (JSON.stringify(structured) ?? '').length > MAX_STRUCTURED_CHARACTERS ? null : structured,
    stdout: execution.stdout.slice(0, MAX_CHARACTERS),
    stderr: execution.stderr.slice(0, MAX_CHARACTERS),
    json: jsonOf(execution),
    error: error === null ? null : { name: error.name, message: error.message.slice(0, MAX_CHARACTERS) },
  };
}

export function refusedCall({ code, detail }: Pick<Failure, 'code' | 'detail'>): CallResult {
  return {
    execution_id: null,
    session_id: null,
    status: 'refused',
    exit_code: null,
    value: null,
    structured: null,
    stdout: '',
    stderr: '',
    json: null,
    error: { name: code, message: detail },
  };
}

function jsonOf({ stdout, truncated }: Execution): unknown {
  if (truncated || stdout.length > MAX_STRUCTURED_CHARACTERS) return null;
  try {
    return JSON.parse(stdout);
  } catch {
    return null;
  }
}
