/** What a call gave, as a program gets it, and as receipts digest it. */
import type { CallError } from '../../shared/code-mode.ts';
import type { Execution } from '../../shared/execution.ts';

const MAX_MESSAGE_CHARACTERS = 4_000;

export type Given = { result: unknown } | { error: CallError };

/** What the function in the program returns or raises. */
export function givenBy(execution: Execution): Given {
  const { status, structured, stdout, results, error } = execution;
  if (status === 'succeeded') {
    if (structured !== null) return { result: structured };
    return { result: stdout === '' && results.length > 0 ? results : stdout };
  }
  const shown = structured === null ? stdout : JSON.stringify(structured);
  const why = error === null ? `the call is ${status}` : `${error.name}: ${error.message}`;
  return {
    error: {
      code: status === 'failed' ? 'tool_failed' : status,
      message: `${why}${shown === '' ? '' : `\n${shown}`}`.slice(0, MAX_MESSAGE_CHARACTERS).toWellFormed(),
    },
  };
}

/** The bytes that a receipt digests. */
export function givenText(given: Given): string {
  return JSON.stringify('result' in given ? given.result : given.error) ?? 'null';
}
