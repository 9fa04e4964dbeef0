/** Programs that call registered functions: each is an execution of the session's shell, beside the program. */
import { abortAllDurableObjects } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { ReceiptExportSchema } from '../../../shared/receipt-verify.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const SUM = {
  name: 'sum',
  version: '3',
  description: 'Adds',
  kind: 'code',
  language: 'python',
  code: 'def main(a, b):\n    return {"sum": a + b}\n',
  input_schema: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } },
  output_schema: { type: 'object', required: ['sum'] },
};

let host: HostDouble;
let sessionId: string;
let tenants = 0;
let tenant: string;
let running: ExecutionDouble[];

const ask = async (method: string, path: string, body?: object) =>
  api(method, path, {
    token: await tokenOf({ claims: { tenant } }),
    ...(body === undefined ? {} : { body }),
  });

async function open(options: { hasLanes?: boolean; rollback?: string } = {}): Promise<void> {
  const { rollback, ...hostOptions } = options;
  tenants += 1;
  tenant = `program-functions-${tenants}`;
  running = [];
  host = await connectFakeHost({
    ...hostOptions,
    script: (execution) => {
      execution.started();
      running.push(execution);
    },
  });
  const body = rollback === undefined ? {} : { rollback };
  sessionId = SessionSchema.parse((await ask('POST', '/v1/sessions', body)).json).session_id;
  const registered = await ask('POST', '/v1/tools', SUM);
  expect(registered.status, registered.text).toBe(201);
}
afterEach(() => {
  vi.restoreAllMocks();
  host.close();
});

async function begin(): Promise<{ program: Program; execution: ExecutionDouble }> {
  const body = { language: 'python', code: 'x', detach: true };
  const answer = await ask('POST', `/v1/sessions/${sessionId}/programs`, body);
  expect(answer.status, answer.text).toBe(202);
  return { program: ProgramSchema.parse(answer.json), execution: await nth(0) };
}

async function nth(n: number): Promise<ExecutionDouble> {
  await host.until(() => running.length > n);
  const found = running[n];
  if (found === undefined) throw new Error('not started');
  return found;
}

async function now({ program_id }: Program): Promise<Program> {
  const path = `/v1/sessions/${sessionId}/programs/${program_id}`;
  return ProgramSchema.parse((await ask('GET', path)).json);
}

describe('a registered function', () => {
  beforeEach(() => open());

  test('is among the tools of a program, and runs in a shell beside it, once', async () => {
    const { program, execution } = await begin();
    expect(execution.arguments.program).toMatchObject({ tools: [{ name: 'sum', path: ['sum'] }] });
    execution.call(1, 'sum', { a: 1, b: 2 });
    execution.waits();
    const called = await nth(1);
    expect(called.claims).toMatchObject({ tool: 'shell', limits: { timeout_ms: 30_000 } });
    expect(String(called.arguments.command)).toContain('python3 -');
    await called.write('stderr', 'adding\n');
    await called.write('stdout', '{"result": {"sum": 3}}');
    await called.finish();
    expect(await execution.answer(1)).toEqual({ call: 1, result: { sum: 3 } });
    const { calls } = await now(program);
    expect(calls).toMatchObject([{ tool_name: 'sum', status: 'succeeded', execution_id: called.id }]);
    const shown = await ask('GET', `/v1/sessions/${sessionId}/executions/${called.id}`);
    expect(ExecutionSchema.parse(shown.json)).toMatchObject({
      tool_name: 'sum',
      parent_execution_id: program.program_id,
      stderr: 'adding\n',
    });
    const exported = ReceiptExportSchema.parse((await ask('GET', `/v1/sessions/${sessionId}/receipts`)).json);
    // The host has signed what it ran; the edge signs nothing of it.
    expect([exported.receipts.length, exported.edge_receipts.length]).toEqual([1, 0]);
  });

  test.each([
    ['{"error": {"name": "KeyError", "message": "x"}}', 1, 'tool_failed', 'KeyError: x'],
    ['', 127, 'tool_failed', 'the call is failed\npython3: not found'],
    ['{"result": {"other": 1}}', 0, 'tool_failed', 'OutputMismatch'],
    ['not JSON', 0, 'tool_failed', 'without an answer'],
  ])('that wrote %j and ended with %i raises', async (stdout, exit_code, code, message) => {
    const { execution } = await begin();
    execution.call(1, 'sum', { a: 1, b: 2 });
    const called = await nth(1);
    if (exit_code === 127) await called.write('stderr', 'python3: not found');
    await called.write('stdout', stdout);
    await called.finish({ status: exit_code === 0 ? 'succeeded' : 'failed', exit_code });
    expect(await execution.answer(1)).toMatchObject({
      error: { code, message: expect.stringContaining(message) },
    });
  });

  test('called five times at once runs five times, one after the other', async () => {
    const { execution } = await begin();
    for (let call = 1; call <= 5; call += 1) execution.call(call, 'sum', { a: call, b: 0 });
    for (let turn = 1; turn <= 5; turn += 1) {
      const called = await nth(turn);
      expect(running).toHaveLength(turn + 1);
      const [, a] = /\\"a\\":(\d)/.exec(String(called.arguments.command)) ?? [];
      await called.write('stdout', `{"result": {"sum": ${a}}}`);
      await called.finish();
    }
    for (let call = 1; call <= 5; call += 1) {
      expect(await execution.answer(call)).toEqual({ call, result: { sum: call } });
    }
  });

  test('is not run again by a gateway that starts anew, and is answered by its end', async () => {
    const { execution } = await begin();
    execution.call(1, 'sum', { a: 1, b: 2 });
    const called = await nth(1);
    const double = host.session(sessionId);
    await host.until(() => double.ackedSeq === double.lastSeq);
    await abortAllDurableObjects();
    await double.connect();
    await called.write('stdout', '{"result": {"sum": 3}}');
    await called.finish();
    expect(await execution.answer(1)).toEqual({ call: 1, result: { sum: 3 } });
    expect(running).toHaveLength(2);
  });

  test('is stopped when its program ends', async () => {
    const { execution } = await begin();
    execution.call(1, 'sum', { a: 1, b: 2 });
    const called = await nth(1);
    await execution.finish({ status: 'interrupted', exit_code: null });
    await called.interrupted;
  });
});

test.each([{ hasLanes: false }, { rollback: 'on_failure' }])(
  'where nothing runs beside a program (%j) a function is refused, and nothing waits for ever',
  async (options) => {
    await open(options);
    const { execution } = await begin();
    execution.call(1, 'sum', { a: 1, b: 2 });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_unavailable' } });
  },
);
