/** Programs that call tools, on the real stack: what they hold stays as it is while they wait, whatever restarts meanwhile. */
import { beforeAll, describe, expect, test } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { cgroupParent } from '../../scripts/development/host-agent-child.ts';
import { type Program, ProgramSchema } from '../../shared/code-mode.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { readReceipt, verifyChain } from '../../shared/receipt-verify.ts';
import { RegisteredToolSchema } from '../../shared/registered-tool.ts';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import { holdingProgram } from './holding-program.ts';
import { useSession, useStack } from './stack.ts';
import { pause, until } from './until.ts';

const FREEZE_AFTER_MS = 300;

let stateDir = '';
const stack = useStack((folder) => {
  stateDir = folder;
  return { SANDGATE_WAITING_FREEZE_MS: String(FREEZE_AFTER_MS) };
});
const session = useSession(stack);

beforeAll(async () => {
  const body = {
    description: 'Asks a person',
    kind: 'client',
    input_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  };
  await stack().api.json(RegisteredToolSchema, 'PUT', '/v1/tools/people.ask', { body });
});

async function post(path: string, body: object): Promise<Program> {
  return (await stack().api.json(ProgramSchema, 'POST', `${session().path}/programs${path}`, { body })).value;
}

async function get({ program_id }: Program): Promise<Program> {
  return (await stack().api.json(ProgramSchema, 'GET', `${session().path}/programs/${program_id}`)).value;
}

function reached(program: Program, what: string, condition: (program: Program) => boolean): Promise<Program> {
  return until(what, PATIENCE_MS, async () => {
    const now = await get(program);
    return condition(now) ? now : undefined;
  });
}

function results(program: Program, answer: (n: number) => object): { id: string }[] {
  return program.pending.map(({ id, arguments: args }) => ({ id, ...answer(Number(args.n)) }));
}

const HOLDS_MUCH = holdingProgram();

test('a program with memory, a lock, a thread and a generator waits frozen through a restart, and ends right', async () => {
  const waiting = await post('', { language: 'python', code: HOLDS_MUCH });
  expect(waiting.status).toBe('waiting');
  expect(waiting.pending.map(({ arguments: args }) => args.n)).toEqual([0, 1, 2, 3, 4]);
  const cgroups = await openCgroups(`/${cgroupParent(stateDir)}`);
  const sandboxId = (await session().describe()).sandbox_id ?? '';
  const frozen = () =>
    until('the sandbox is frozen', PATIENCE_MS, () => cgroups.isFrozen(sandboxId) || undefined);
  await frozen();
  await stack().restartEdge();
  expect(await get(waiting)).toMatchObject({ status: 'waiting', pending: waiting.pending });
  const [first, ...others] = results(waiting, (n) => ({ structured: n * n })).toReversed();
  await post(`/${waiting.program_id}/tool_results`, { results: [first], detach: true });
  // One answer wakes it; it waits for the others as before.
  await until('the answer is there', PATIENCE_MS, async () =>
    (await get(waiting)).pending.length === 4 ? true : undefined,
  );
  await frozen();
  const ended = await post(`/${waiting.program_id}/tool_results`, { results: others });
  expect(ended.execution.error).toBeNull();
  expect(ended).toMatchObject({
    status: 'succeeded',
    pending: [],
    used: { calls: 5 },
    calls: Array.from({ length: 5 }, () => ({ tool_name: 'people.ask', status: 'succeeded' })),
    execution: {
      stdout: 'before\nafter\n',
      value: `([0, 1, 4, 9, 16], 2, ['begun', 'freed'], 100000000, '9031c166')`,
    },
  });
  expect((await session().py('len(held), next(numbers)')).value).toBe('(100000000, 3)');
});

const SPINS = `
import threading, time
end = time.monotonic() + 8
def spin():
    while time.monotonic() < end: pass
spinner = threading.Thread(target=spin); spinner.start()
tools.people.ask(n=1)`;

test('waiting does not count, working does', async () => {
  const limits = { timeout_ms: 6_000 };
  const patient = await post('', { language: 'python', code: 'tools.people.ask(n=1)', limits });
  await pause(limits.timeout_ms + 1_000);
  expect(
    await post(`/${patient.program_id}/tool_results`, {
      results: results(patient, () => ({ content: 'late' })),
    }),
  ).toMatchObject({
    status: 'succeeded',
    execution: { value: "'late'" },
  });
  // A program of which a thread works does not wait, though it calls.
  const busy = await post('', {
    language: 'python',
    code: SPINS,
    limits,
  });
  const ended = await reached(busy, 'its deadline', ({ status }) => isTerminal(status));
  expect(ended).toMatchObject({ status: 'timeout', calls: [{ status: 'void' }] });
  await session().py("'spinner' in globals() and spinner.join()");
});

test('a program that is cancelled keeps its kernel, and what it is refused it can catch', async () => {
  const stopped = await post('', { language: 'python', code: 'kept = 1\ntools.people.ask(n=1)' });
  await post(`/${stopped.program_id}/cancel`, {});
  const cancelled = await reached(stopped, 'the end', ({ status }) => isTerminal(status));
  expect(cancelled).toMatchObject({ status: 'interrupted', calls: [{ status: 'void' }] });
  const code = `
codes = []
for name, arguments in [("people.ask", {"n": "x"}), ("missing", {}), ("shell", {"command": "ls"})]:
    try:
        tools.call(name, arguments)
    except ToolError as error:
        codes.append(error.code)
(kept, codes)`;
  const refused = await post('', { language: 'python', code });
  expect(refused.execution.value).toBe("(1, ['invalid_arguments', 'tool_not_found', 'tool_unavailable'])");
});

test('a program that waits is suspended with its session, and goes on where it was when it is answered', async () => {
  const code = `
import asyncio
kept = bytearray(5_000_000)
both = await asyncio.gather(tools.aio.people.ask(n=1), tools.aio.people.ask(n=2))
print("woken")
(both, len(kept), tools.people.ask(n=3))`;
  const waiting = await post('', { language: 'python', code });
  expect(waiting.pending).toHaveLength(2);
  const suspended = await stack().api.json(SessionSchema, 'POST', `${session().path}/suspend`, { body: {} });
  expect(suspended.value.state).toBe('suspended');
  expect(await get(waiting)).toMatchObject({ status: 'waiting', pending: waiting.pending });
  const path = `/${waiting.program_id}/tool_results`;
  const next = await post(path, { results: results(waiting, (n) => ({ structured: n })) });
  expect(next).toMatchObject({ status: 'waiting', pending: [{ arguments: { n: 3 } }] });
  const ended = await post(path, { results: results(next, (n) => ({ structured: n })) });
  expect(ended).toMatchObject({
    status: 'succeeded',
    used: { calls: 3 },
    execution: { stdout: 'woken\n', value: '([1, 2], 5000000, 3)', error: null },
  });
});

test('a program calls registered functions, at once and in turn, in interpreters of their own', async () => {
  const register = (name: string, language: string, code: string) =>
    stack().api.json(RegisteredToolSchema, 'PUT', `/v1/tools/${name}`, {
      body: { description: 'x', kind: 'code', language, code },
    });
  await register(
    'square',
    'python',
    'def main(n):\n    print("squaring")\n    if n < 0:\n        raise ValueError("negative")\n    return {"n": n * n}\n',
  );
  await register('spin', 'python', 'def main():\n    while True: pass\n');
  await register('in-node', 'javascript', 'const main = () => 1;');
  const code = `
import asyncio
n = 7
squares = await asyncio.gather(*[tools.aio.square(n=n) for n in range(5)])
errors = []
for name, arguments in [("square", {"n": -1}), ("in-node", {}), ("square", {"n": "x"})]:
    try:
        tools.call(name, arguments)
    except ToolError as error:
        errors.append((error.code, error.message))
open("seen.txt", "w").write("x")
([one["n"] for one in squares], n, errors)`;
  const ended = await post('', { language: 'python', code });
  expect(ended.execution.error).toBeNull();
  expect(ended.execution.value).toContain('([0, 1, 4, 9, 16], 7, ');
  expect(ended.execution.value).toContain("('tool_failed', 'ValueError: negative')");
  expect(ended.execution.value).toContain('node: not found');
  expect(ended.execution.stdout).toBe('');
  const { receipts, keys } = await session().receipts();
  const receiptsOfCalls = new Map(
    receipts.map((envelope) => {
      const read = readReceipt(envelope);
      if (!read.ok) throw new Error(read.detail);
      return [read.value.receipt.execution_id, read.value.receipt];
    }),
  );
  expect(await verifyChain(receipts, keys, session().id)).toMatchObject({ ok: true });
  expect(receiptsOfCalls.get(ended.calls[0]?.execution_id ?? '')).toMatchObject({
    tool: 'shell',
    status: 'succeeded',
  });
  const inner = await session().execution(ended.calls[0]?.execution_id ?? '');
  expect(inner).toMatchObject({
    tool_name: 'square',
    parent_execution_id: ended.program_id,
    stderr: 'squaring\n',
  });
  // A call goes with its program.
  const spinning = await post('', { language: 'python', code: 'tools.spin()', detach: true });
  const { calls } = await reached(spinning, 'the call', (now) => now.calls[0]?.status === 'running');
  await post(`/${spinning.program_id}/cancel`, {});
  await reached(spinning, 'the end', ({ status }) => isTerminal(status));
  const stopped = await session().ended(calls[0]?.execution_id ?? '', PATIENCE_MS);
  expect(['interrupted', 'cancelled']).toContain(stopped.status);
});

describe('the host', () => {
  test('that dies under a waiting program leaves it unknown, and says that its state is lost', async () => {
    const waiting = await post('', { language: 'python', code: 'tools.people.ask(n=1)' });
    expect(waiting.status).toBe('waiting');
    process.kill(stack().hostAgentPid(), 'SIGKILL');
    const ended = await reached(waiting, 'the end', ({ status }) => isTerminal(status));
    expect(ended).toMatchObject({ status: 'unknown', calls: [{ status: 'void' }] });
    const late = await stack().api.request(
      'POST',
      `${session().path}/programs/${waiting.program_id}/tool_results`,
      {
        body: { results: results(waiting, () => ({ content: 'x' })) },
      },
    );
    expect(late.status).toBe(409);
  });
});
