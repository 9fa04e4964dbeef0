/** A session that is forked while a program waits: the program goes on in each fork, with an answer of its own. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { ReceiptExportSchema, verifyChain } from '../../../shared/receipt-verify.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ForkedSchema } from '../../../shared/snapshot-resource.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { ASK, STOCK_PRICE } from '../harness/example-tools.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let tenant: string;
let tenants = 0;
let parent: string;
let running: ExecutionDouble[];

async function ask(method: string, path: string, body?: object) {
  const token = await tokenOf({ claims: { tenant } });
  return api(method, path, { token, ...(body === undefined ? {} : { body }) });
}

beforeEach(async () => {
  tenants += 1;
  tenant = `forked-${tenants}`;
  running = [];
  host = await connectFakeHost({
    script: (execution) => {
      execution.started();
      running.push(execution);
    },
  });
  parent = SessionSchema.parse((await ask('POST', '/v1/sessions', {})).json).session_id;
  for (const tool of [ASK, STOCK_PRICE]) expect((await ask('POST', '/v1/tools', tool)).status).toBe(201);
}, 60_000);
afterEach(() => {
  vi.restoreAllMocks();
  host.close();
});

async function begin(limits: object = {}): Promise<{ program: Program; execution: ExecutionDouble }> {
  const body = { language: 'python', code: 'x', detach: true, limits };
  const answer = await ask('POST', `/v1/sessions/${parent}/programs`, body);
  expect(answer.status, answer.text).toBe(202);
  await host.until(() => running.length === 1);
  const [execution] = running;
  if (execution === undefined) throw new Error('not started');
  return { program: ProgramSchema.parse(answer.json), execution };
}

async function show(sessionId: string, programId: string): Promise<Program> {
  const answer = await ask('GET', `/v1/sessions/${sessionId}/programs/${programId}`);
  return ProgramSchema.parse(answer.json);
}

async function pending(sessionId: string, programId: string, count: number): Promise<Program> {
  return eventually(async () => {
    const program = await show(sessionId, programId);
    expect(program.pending).toHaveLength(count);
    return program;
  });
}

/** The sessions, and the one execution of each. */
async function fork(count: number) {
  const answer = await ask('POST', `/v1/sessions/${parent}/fork`, { count });
  expect(answer.status, answer.text).toBe(201);
  return Promise.all(
    ForkedSchema.parse(answer.json).sessions.map(async ({ session_id: sessionId }) => {
      const listed = await ask('GET', `/v1/sessions/${sessionId}/executions`);
      const { executions } = listed.json as { executions: { execution_id: string }[] };
      expect(executions.length).toBeLessThanOrEqual(1);
      const id = executions[0]?.execution_id ?? '';
      return { sessionId, id, double: host.session(sessionId).executions.get(id) };
    }),
  );
}

async function answer(sessionId: string, program: Program, content: string) {
  const results = program.pending.map(({ id }) => ({ id, content }));
  const path = `/v1/sessions/${sessionId}/programs/${program.program_id}/tool_results`;
  return ask('POST', path, { results, detach: true });
}

describe('a fork at a pending call', () => {
  test('goes on in each session with another answer, under an id and a receipt of its own', async () => {
    const { program, execution } = await begin({ calls: 3 });
    execution.call(1, 'people.ask', { question: 'which way?' });
    execution.waits(7_000);
    const asked = await pending(parent, program.program_id, 1);
    const children = await fork(3);
    const ids = new Set<string>([asked.pending[0]?.id ?? '']);
    for (const [n, { sessionId, id, double }] of children.entries()) {
      const shown = await show(sessionId, id);
      expect(shown).toMatchObject({
        parent_program_id: program.program_id,
        pending: [{ tool_name: 'people.ask', arguments: { question: 'which way?' } }],
        used: { calls: 1 },
        limits: { calls: 3 },
      });
      ids.add(shown.pending[0]?.id ?? '');
      expect((await answer(sessionId, shown, `way ${n}`)).status).toBe(202);
      expect(await double?.answer(1)).toEqual({ call: 1, result: `way ${n}` });
      // Its next call has the next number, and is charged to what the parent had left.
      double?.call(2, 'people.ask', { question: `and after way ${n}?` });
      expect(await pending(sessionId, id, 1)).toMatchObject({ used: { calls: 2 } });
      await double?.write('stdout', `took way ${n}\n`);
      await double?.finish();
      await eventually(async () =>
        expect((await show(sessionId, id)).execution).toMatchObject({
          status: 'succeeded',
          stdout: `took way ${n}\n`,
        }),
      );
      const exported = ReceiptExportSchema.parse(
        (await ask('GET', `/v1/sessions/${sessionId}/receipts`)).json,
      );
      expect(exported.receipts).toHaveLength(1);
      expect(await verifyChain(exported.receipts, exported.keys, sessionId)).toMatchObject({ ok: true });
    }
    expect(ids.size).toBe(4);
    // The parent waits as before.
    const still = await pending(parent, program.program_id, 1);
    expect(still.parent_program_id).toBeNull();
    await answer(parent, still, 'home');
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'home' });
    expect(execution.answers).toHaveLength(1);
  });

  test('is of the calls at the checkpoint: an answer that came since is the parent’s alone', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'one' });
    execution.call(2, 'people.ask', { question: 'two' });
    const asked = await pending(parent, program.program_id, 2);
    const [first] = asked.pending;
    const results = [{ id: first?.id, content: 'answered before' }];
    await ask('POST', `/v1/sessions/${parent}/programs/${program.program_id}/tool_results`, {
      results,
      detach: true,
    });
    await execution.answer(1);
    const [child] = await fork(1);
    const shown = await show(child?.sessionId ?? '', child?.id ?? '');
    expect(shown.pending.map(({ arguments: args }) => args)).toEqual([{ question: 'two' }]);
  });

  test('makes no call of the gateway again that may have had its effect', async () => {
    const held = Promise.withResolvers<Response>();
    vi.spyOn(globalThis, 'fetch').mockReturnValue(held.promise);
    const { program, execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'A' });
    await eventually(async () =>
      expect((await show(parent, program.program_id)).calls).toMatchObject([{ status: 'running' }]),
    );
    const [child] = await fork(1);
    const answered = await child?.double?.answer(1);
    expect(answered).toMatchObject({ error: { code: 'unknown' } });
    expect(globalThis.fetch).toHaveBeenCalledTimes(1);
    held.resolve(Response.json({ price: 3 }));
    expect(await execution.answer(1)).toMatchObject({ call: 1 });
  });

  test('has no call that only ran, and is what it was without programs', async () => {
    await begin();
    const [child] = await fork(1);
    expect(child).toMatchObject({ id: '', double: undefined });
    const missing = await ask('GET', `/v1/sessions/${child?.sessionId}/programs/${`exe_${'a'.repeat(22)}`}`);
    expect(problemIn(missing).code).toBe('not_found');
  });

  test('ends in a session that is deleted, and in no other', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'which way?' });
    execution.waits();
    await pending(parent, program.program_id, 1);
    const [first, second] = await fork(2);
    expect((await ask('DELETE', `/v1/sessions/${first?.sessionId}`)).status).toBe(204);
    expect((await show(second?.sessionId ?? '', second?.id ?? '')).pending).toHaveLength(1);
    expect((await show(parent, program.program_id)).pending).toHaveLength(1);
  });
});
