/** Programs whose calls somebody else has to allow: they wait, go on when it is decided, and see a denial as an error. */
import { abortAllDurableObjects, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { APPROVAL_LIFETIME_MS, ApprovalListSchema } from '../../../shared/approval.ts';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost, retireFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let sessionId: string;
let tenants = 0;
let tenant: string;
let requests: string[];

const BOOK = {
  name: 'book',
  description: 'Books a room',
  kind: 'http',
  method: 'POST',
  url: 'https://rooms.example.com/book',
  side_effects: ['write'],
  approval: 'required',
};
const ASK = { name: 'people.ask', description: 'Asks a person', kind: 'client', approval: 'required' };

const as = async (sub: string, method: string, path: string, body?: object) =>
  api(method, path, {
    token: await tokenOf({ claims: { tenant, sub } }),
    ...(body === undefined ? {} : { body }),
  });
const path = () => `/v1/sessions/${sessionId}/programs`;

beforeEach(async () => {
  tenants += 1;
  tenant = `program-approvals-${tenants}`;
  host = await connectFakeHost();
  sessionId = SessionSchema.parse((await as('alice', 'POST', '/v1/sessions', {})).json).session_id;
  requests = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    requests.push(await new Request(input, init).text());
    return Response.json({ booked: true });
  });
  for (const tool of [BOOK, ASK]) {
    const registered = await as('alice', 'POST', '/v1/tools', tool);
    expect(registered.status, registered.text).toBe(201);
  }
});
afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  await retireFakeHost(host);
});

async function begin(limits: object = {}): Promise<{ program: Program; execution: ExecutionDouble }> {
  const begun = Promise.withResolvers<ExecutionDouble>();
  host.script = (execution) => {
    execution.started();
    begun.resolve(execution);
  };
  const body = { language: 'python', code: 'x', detach: true, limits };
  const answer = await as('alice', 'POST', path(), body);
  expect(answer.status, answer.text).toBe(202);
  return { program: ProgramSchema.parse(answer.json), execution: await begun.promise };
}

async function now({ program_id }: Program): Promise<Program> {
  return ProgramSchema.parse((await as('alice', 'GET', `${path()}/${program_id}`)).json);
}

/** The call with this number, once it waits for an approval. */
async function asked(program: Program, call: number): Promise<string> {
  return eventually(async () => {
    const found = (await now(program)).calls[call - 1];
    expect(found?.status).toBe('awaiting_approval');
    const listed = ApprovalListSchema.parse((await as('bob', 'GET', '/v1/approvals?status=waiting')).json);
    const executionId = found?.execution_id ?? '';
    expect(listed.approvals.map(({ execution_id }) => execution_id)).toContain(executionId);
    return executionId;
  });
}

function decide(executionId: string, body: object, by = 'bob') {
  return as(by, 'POST', `/v1/executions/${executionId}/approval`, body);
}

const approvals = () => env.APPROVALS.get(env.APPROVALS.idFromName(tenant));

describe('a call of a program that needs an approval', () => {
  test('waits, and is made and answered when somebody else approves', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    execution.waits();
    const executionId = await asked(program, 1);
    expect(requests).toEqual([]);
    const shown = await as('alice', 'GET', `/v1/sessions/${sessionId}/executions/${executionId}`);
    expect(ExecutionSchema.parse(shown.json)).toMatchObject({
      status: 'waiting',
      reason: 'approval_required',
      parent_execution_id: program.program_id,
    });
    const own = await decide(executionId, { decision: 'approve' }, 'alice');
    expect(problemIn(own).code).toBe('forbidden');
    expect((await decide(executionId, { decision: 'approve' })).status).toBe(200);
    expect(await execution.answer(1)).toEqual({ call: 1, result: { booked: true } });
    expect(requests).toEqual(['{"room":7}']);
    const { calls, used } = await now(program);
    expect([calls[0]?.status, used]).toMatchObject(['succeeded', { calls: 1, writes: 1 }]);
    expect(problemIn(await decide(executionId, { decision: 'deny' })).code).toBe('approval_decided');
  });

  test('raises what who denied it said', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    await decide(await asked(program, 1), { decision: 'deny', reason: 'no rooms today' });
    expect(await execution.answer(1)).toEqual({
      call: 1,
      error: { code: 'approval_denied', message: 'no rooms today' },
    });
    expect(requests).toEqual([]);
    expect((await now(program)).calls).toMatchObject([{ status: 'refused' }]);
  });

  test('of a tool of the caller is handed to the caller once it is allowed', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    await decide(await asked(program, 1), { decision: 'approve' });
    const { pending } = await eventually(async () => {
      const found = await now(program);
      expect(found.pending).toHaveLength(1);
      return found;
    });
    const results = [{ id: pending[0]?.id, content: 'yes' }];
    await as('alice', 'POST', `${path()}/${program.program_id}/tool_results`, { results, detach: true });
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'yes' });
  });

  test('is told to whoever began the program and waits', async () => {
    const begun = Promise.withResolvers<ExecutionDouble>();
    host.script = (execution) => {
      execution.started();
      begun.resolve(execution);
    };
    const waiting = as('alice', 'POST', path(), { language: 'python', code: 'x' });
    const execution = await begun.promise;
    execution.call(1, 'book', { room: 7 });
    execution.waits();
    const answer = await waiting;
    expect(answer.status, answer.text).toBe(202);
    expect(ProgramSchema.parse(answer.json)).toMatchObject({
      status: 'waiting',
      pending: [],
      calls: [{ status: 'awaiting_approval' }],
    });
  });

  test('is asked for once, and made once, whatever restarts', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    execution.waits();
    const executionId = await asked(program, 1);
    const double = host.session(sessionId);
    await host.until(() => double.ackedSeq === double.lastSeq);
    await abortAllDurableObjects();
    await double.connect();
    expect(await asked(program, 1)).toBe(executionId);
    const listed = ApprovalListSchema.parse((await as('bob', 'GET', '/v1/approvals')).json);
    expect(listed.approvals).toHaveLength(1);
    await decide(executionId, { decision: 'approve' });
    expect(await execution.answer(1)).toEqual({ call: 1, result: { booked: true } });
    await abortAllDurableObjects();
    await double.connect();
    await runDurableObjectAlarm(approvals());
    expect((await now(program)).calls).toMatchObject([{ status: 'succeeded' }]);
    expect(requests).toHaveLength(1);
  });

  test('ends with its program, and can then be allowed no more', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    execution.waits();
    const executionId = await asked(program, 1);
    await execution.finish({ status: 'interrupted', exit_code: null });
    await eventually(async () => expect((await now(program)).calls).toMatchObject([{ status: 'void' }]));
    await eventually(async () =>
      expect(problemIn(await decide(executionId, { decision: 'approve' })).code).toBe('approval_decided'),
    );
    expect(requests).toEqual([]);
  });

  test('that nobody decides about raises, and so does one that its caller withdraws', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    execution.call(2, 'book', { room: 8 });
    const withdrawn = await asked(program, 1);
    await asked(program, 2);
    await as('alice', 'POST', `/v1/sessions/${sessionId}/interrupt`, { execution_id: withdrawn });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'cancelled' } });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + APPROVAL_LIFETIME_MS + 1_000 });
    await runDurableObjectAlarm(approvals());
    expect(await execution.answer(2)).toMatchObject({ error: { code: 'approval_expired' } });
    expect(requests).toEqual([]);
  });

  test('of a tool that is another one by then is not made', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'book', { room: 7 });
    const executionId = await asked(program, 1);
    await as('alice', 'PUT', '/v1/tools/book', { ...BOOK, url: 'https://rooms.example.com/other' });
    await decide(executionId, { decision: 'approve' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_unavailable' } });
    expect(requests).toEqual([]);
  });
});
