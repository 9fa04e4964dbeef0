import { expect, test } from 'vitest';
import { utf8 } from '../../../shared/encoding.ts';
import type { Execution } from '../../../shared/execution.ts';
import { CreateWorkflowSchema, MAX_WORKFLOW_BYTES } from '../../../shared/workflow.ts';
import { callResult } from '../../../worker/workflows/call-result.ts';
import { executionOf } from '../harness/executions.ts';

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
