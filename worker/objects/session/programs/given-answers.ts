/** Answers that a caller gives to the calls of a program: all of them are taken, or none. */
import { type CallAnswer, MAX_CALL_RESULT_BYTES, type ToolResult } from '../../../../shared/code-mode.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Given } from '../../../tools/given.ts';
import { type CallRow, numberOf, type ProgramStore } from './store.ts';

export interface GivenAnswer {
  row: CallRow;
  answer: Given;
}

/** Those that are new; the same answer once more is taken for one whose giver did not hear of the first. */
export function givenAnswers(
  store: ProgramStore,
  n: number,
  results: readonly ToolResult[],
): Outcome<GivenAnswer[]> {
  const answers: GivenAnswer[] = [];
  for (const [index, result] of results.entries()) {
    const row = store.callById(n, result.id);
    if (row === undefined) return notPending(index, 'there is no such call in this program', 'not_found');
    const answer = answerIn(result);
    const text = answerText(row, answer);
    if (utf8(text).length > MAX_CALL_RESULT_BYTES) {
      const expected = `a result has at most ${MAX_CALL_RESULT_BYTES} bytes as JSON`;
      return failure('payload_too_large', `body.results.${index}: ${expected}`);
    }
    if (row.status !== 'pending') {
      if (row.answer !== text) return notPending(index, `the call is ${row.status}`, 'call_not_pending');
    } else if (answers.some((other) => other.row.id === row.id)) {
      return notPending(index, 'the call is answered twice here', 'invalid_request');
    } else answers.push({ row, answer });
  }
  return success(answers);
}

export function answerText(row: CallRow, answer: Given): string {
  const whole: CallAnswer = { call: numberOf(row), ...answer };
  return JSON.stringify(whole);
}

function answerIn({ content, structured, error }: ToolResult): Given {
  if (error !== undefined) {
    return { error: typeof error === 'string' ? { code: 'tool_failed', message: error } : error };
  }
  return { result: structured === undefined ? content : structured };
}

function notPending(
  index: number,
  detail: string,
  code: 'not_found' | 'call_not_pending' | 'invalid_request',
): Failure {
  return failure(code, `body.results.${index}: ${detail}`, {
    violations: [{ path: `body.results.${index}.id`, expected: 'the id of a call that is pending' }],
  });
}
