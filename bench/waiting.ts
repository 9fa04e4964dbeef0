/** A program that waits for its caller: from the sending of the answer to its next instruction, however it waits. */
import { setTimeout as wait } from 'node:timers/promises';
import { DEFAULT_REST_AFTER_MS } from '../host-agent/sandbox/program-rest.ts';
import { type Program, ProgramSchema } from '../shared/code-mode.ts';
import { isTerminal } from '../shared/lifecycle.ts';
import type { Api } from './api.ts';
import { compare } from './calls.ts';
import { summarise } from './rounds.ts';
import type { Measurement } from './table.ts';

const ROUNDS = 5;
const SUSPENDED_ROUNDS = 3;
const CALLS = 2 * ROUNDS + SUSPENDED_ROUNDS;
/** Behind the time after which it is frozen. */
const FROZEN_AFTER_MS = DEFAULT_REST_AFTER_MS + 1_000;
/** The edge may answer before the program asks again. */
const POLL_MS = 20;
const TOOL = 'bench.ask';
/** Guest and host have one clock. */
const CODE = `import time
seen = []
for n in range(${CALLS}):
    tools.bench.ask(n=n)
    seen.append(time.time() * 1000)
    print(repr(seen[-1]), flush=True)`;

export async function measureWaiting(api: Api): Promise<Measurement> {
  await api.put(`/v1/tools/${TOOL}`, {
    description: 'Asks the bench',
    kind: 'client',
    input_schema: { type: 'object', properties: { n: { type: 'integer' } } },
  });
  const { session_id: id } = await api.createSession();
  const path = `/v1/sessions/${id}/programs`;
  const toItsCall = async (answered: unknown): Promise<Program> => {
    const program = ProgramSchema.parse(answered);
    if (program.pending.length > 0 || program.status === 'succeeded') return program;
    if (isTerminal(program.status))
      throw new Error(`the program ended as ${program.status}: ${program.execution.stderr}`);
    await wait(POLL_MS);
    return toItsCall(await api.get(`${path}/${program.program_id}`));
  };
  let program = await toItsCall(
    await api.post(path, { language: 'python', code: CODE, tools: [TOOL], limits: { timeout_ms: 600_000 } }),
  );
  const goOn = async (): Promise<number> => {
    const results = program.pending.map((call) => ({ id: call.id, structured: {} }));
    const sentAtMs = Date.now();
    program = await toItsCall(await api.post(`${path}/${program.program_id}/tool_results`, { results }));
    const seenAtMs = Number(program.execution.stdout.trim().split('\n').at(-1));
    return seenAtMs - sentAtMs;
  };
  const running: number[] = [];
  const frozen: number[] = [];
  const suspended: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    running.push(await goOn());
    await wait(FROZEN_AFTER_MS);
    frozen.push(await goOn());
  }
  for (let round = 0; round < SUSPENDED_ROUNDS; round += 1) {
    await api.act(id, 'suspend');
    suspended.push(await goOn());
  }
  await api.deleteSession(id);
  const awake = summarise('a program that waits awake', running);
  return {
    lines: [
      compare(summarise('answer of a tool to the next instruction, frozen', frozen), awake, null),
      compare(summarise('answer of a tool to the next instruction, suspended', suspended), awake, null),
    ],
    notes: [],
  };
}
