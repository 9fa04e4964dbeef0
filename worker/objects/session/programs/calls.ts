/** Calls of the API that concern programs. */
import type { Program, ToolResult } from '../../../../shared/code-mode.ts';
import { sha256Hex } from '../../../../shared/digest.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Caller } from '../../caller.ts';
import { accept, find, wakeFor } from '../executions/calls.ts';
import type { ExecuteInput } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { ProgramFacts } from './port.ts';
import type { ProgramRow } from './store.ts';
import { programView } from './view.ts';

export async function beginProgram(
  runtime: SessionRuntime,
  input: ExecuteInput,
  facts: ProgramFacts,
): Promise<Outcome<Program>> {
  const text = JSON.stringify(input.body.arguments);
  const sha256 = await sha256Hex(text);
  const woken = await wakeFor(runtime, input);
  if (!woken.ok) return woken;
  const accepted = await accept(runtime, input, {
    arguments: { text, sha256 },
    // All that it says is told as it comes, what it calls among it.
    relay: 'full',
    storing: (record) => {
      runtime.programs.begin(record, facts);
      runtime.events.wantsCallback(record.executionId, input.callback ?? null);
    },
  });
  return accepted.ok ? viewOf(runtime, accepted.value) : accepted;
}

export function programOf(runtime: SessionRuntime, caller: Caller, programId: string): Outcome<Program> {
  const found = find(runtime, caller, programId);
  return found.ok ? viewOf(runtime, found.value) : found;
}

export async function waitProgram(
  runtime: SessionRuntime,
  caller: Caller,
  programId: string,
): Promise<Outcome<Program>> {
  const found = find(runtime, caller, programId);
  if (!found.ok) return found;
  await runtime.programs.wait(found.value);
  return viewOf(runtime, found.value);
}

export function answerCalls(
  runtime: SessionRuntime,
  caller: Caller,
  programId: string,
  results: readonly ToolResult[],
): Outcome<null> {
  const found = find(runtime, caller, programId);
  if (!found.ok) return found;
  if (rowOf(runtime, found.value) === undefined) return noProgram();
  return runtime.programs.answer(found.value, results);
}

function viewOf(runtime: SessionRuntime, record: ExecutionRecord): Outcome<Program> {
  const program = rowOf(runtime, record);
  if (program === undefined) return noProgram();
  return success(programView(runtime.programs.store, program, runtime.executions.view(record)));
}

function rowOf({ programs }: SessionRuntime, { n }: ExecutionRecord): ProgramRow | undefined {
  return programs.store.find(n);
}

function noProgram(): Outcome<never> {
  return failure('not_found', 'no such program');
}
