/** A call of the tool `code`: a program that is begun, or one that was, to its end or until it waits for somebody outside. */
import { type Program, ProgramLimitsSchema } from '../../shared/code-mode.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { beginProgram } from '../calls/begin-program.ts';
import { outcomeOf, unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { type CallEnd, type CallsRun, forModel } from './calls-run.ts';
import type { CheckedProgram } from './prepare.ts';

type ProgramEnd = CallEnd & { program: Program };

export async function runProgram(
  run: CallsRun,
  asked: CheckedProgram & { index: number },
): Promise<Outcome<ProgramEnd>> {
  const { session } = run;
  const begun = await idOf(run, asked);
  if (!begun.ok) return begun;
  const waited = await session.call((stub) => stub.waitProgram(session.caller, begun.value), SAFE);
  return waited.ok ? success({ execution: waited.value.execution, program: waited.value }) : waited;
}

async function idOf(
  { exchange, session, keyOf }: CallsRun,
  { program, timeoutMs, index }: CheckedProgram & { index: number },
): Promise<Outcome<string>> {
  if (program.programId !== undefined) {
    const { programId } = program;
    const found = await session.call((stub) => stub.program(session.caller, programId), SAFE);
    if (found.ok) return success(programId);
    unwrap(await session.call((stub) => stub.describe(session.caller), SAFE));
    return failure(found.code, `no program ${programId} in this session`);
  }
  const { language, code } = program;
  const limits = ProgramLimitsSchema.parse({ timeout_ms: timeoutMs });
  const request = { language, code, limits };
  const begun = forModel(
    await outcomeOf(async () =>
      beginProgram(exchange, session, { request, idempotency: await keyOf(index) }),
    ),
  );
  return begun.ok ? success(begun.value.program_id) : begun;
}
