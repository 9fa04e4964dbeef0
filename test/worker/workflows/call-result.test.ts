import { expect, test } from 'vitest';
import { utf8 } from '../../../shared/encoding.ts';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { CreateWorkflowSchema, MAX_WORKFLOW_BYTES } from '../../../shared/workflow.ts';
import { callResult } from '../../../worker/workflows/call-result.ts';

const AT = '2026-01-01T00:00:00.000Z';

function executionOf(facts: Partial<Execution>): Execution {
  return ExecutionSchema.parse({
    execution_id: newId('exe'),
    session_id: `ses_${'a'.repeat(38)}`,
    tool_name: 'shell',
    status: 'succeeded',
    exit_code: 0,
    signal: null,
    stdout: '',
    stderr: '',
    encoding: 'utf-8',
    truncated: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    value: null,
    structured: null,
    results: [],
    error: null,
    reason: null,
    state_lost: false,
    created_at: AT,
    started_at: AT,
    finished_at: AT,
    duration_ms: 1,
    timings_ms: null,
    receipt: null,
    ...facts,
  });
}

const bytesOf = (execution: Execution) => utf8(JSON.stringify(JSON.stringify(callResult(execution)))).length;

test('what a step keeps of a call is under what the engine takes, however it is written', () => {
  for (const text of ['a', '"', '\u0001', '漢', '😀', '\\']) {
    const long = text.repeat(200_000);
    const structured = { text: text.repeat(20_000) };
    const execution = executionOf({ stdout: long, stderr: long, value: long, structured });
    expect(bytesOf(execution)).toBeLessThanOrEqual(700 * 1024);
    expect(callResult(execution).stdout.length).toBeGreaterThan(10_000);
  }
  const json = JSON.stringify(Array.from({ length: 40_000 }, () => '漢'));
  expect(callResult(executionOf({ stdout: json })).stdout).toBe(json.slice(0, 100_000));
  const small = executionOf({ stdout: '{"a":1}', structured: { b: 2 } });
  expect(callResult(small)).toMatchObject({ json: { a: 1 }, structured: { b: 2 }, stdout: '{"a":1}' });
});

test('a workflow is bounded by its bytes, not by its characters', () => {
  const workflow = (input: string) => ({ input, tasks: { one: { tool_name: 'shell' } } });
  expect(CreateWorkflowSchema.safeParse(workflow('a'.repeat(100_000))).success).toBe(true);
  const refused = CreateWorkflowSchema.safeParse(workflow('漢'.repeat(100_000)));
  expect(refused.error?.issues[0]?.message).toBe(`a workflow of at most ${MAX_WORKFLOW_BYTES} bytes as JSON`);
});
