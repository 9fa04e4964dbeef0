/** What a call gave, cut to what a step may keep: the whole of it is the execution's, in its session. Pure. */
import { utf8 } from '../../shared/encoding.ts';
import type { Failure } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import type { CallResult } from '../../shared/workflow.ts';

/** The engine keeps at most 1 MiB of a step, its JSON written as a text once more. */
const MAX_STEP_BYTES = 700 * 1024;
/** Of each text, as long as all together are not too much. */
const MAX_CHARACTERS = 100_000;
const MAX_STRUCTURED_CHARACTERS = 200_000;

export function callResult(execution: Execution): CallResult {
  const whole = upTo(MAX_CHARACTERS, execution);
  if (isKept(whole)) return whole;
  const withoutJson = { ...whole, json: null };
  if (isKept(withoutJson)) return withoutJson;
  for (let characters = MAX_CHARACTERS; characters >= 1; characters = Math.floor(characters / 2)) {
    const cut = { ...upTo(characters, execution), json: null, structured: null };
    if (isKept(cut)) return cut;
  }
  return { ...upTo(0, execution), json: null, structured: null };
}

function isKept(result: CallResult): boolean {
  return utf8(JSON.stringify(JSON.stringify(result))).length <= MAX_STEP_BYTES;
}

function upTo(characters: number, execution: Execution): CallResult {
  const { structured, error } = execution;
  return {
    execution_id: execution.execution_id,
    session_id: execution.session_id,
    status: execution.status,
    exit_code: execution.exit_code,
    value: execution.value === null ? null : execution.value.slice(0, characters),
    structured: (JSON.stringify(structured) ?? '').length > MAX_STRUCTURED_CHARACTERS ? null : structured,
    stdout: execution.stdout.slice(0, characters),
    stderr: execution.stderr.slice(0, characters),
    json: jsonOf(execution),
    error: error === null ? null : { name: error.name, message: error.message.slice(0, characters) },
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
