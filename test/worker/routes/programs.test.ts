/** Programs at the edge: their calls are checked, charged, executed or handed to the caller, and answered once. */
import {
  abortAllDurableObjects,
  evictDurableObject,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { type Program, ProgramSchema } from '../../../shared/code-mode.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { TenantPort } from '../../../worker/objects/tenant/port.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { EventReader } from '../harness/event-reader.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

let host: HostDouble;
let sessionId: string;
let running: ExecutionDouble[];
let tenants = 0;
let tenant: string;

const token = (scope = ALL_SCOPES) => tokenOf({ claims: { tenant, scope } });
const path = () => `/v1/sessions/${sessionId}/programs`;

beforeEach(async () => {
  running = [];
  tenants += 1;
  tenant = `programs-${tenants}`;
  host = await connectFakeHost({
    script: (execution) => {
      execution.started();
      running.push(execution);
    },
  });
  const created = await api('POST', '/v1/sessions', { token: await token(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  await register(ASK);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  host.close();
});

const ASK = {
  name: 'people.ask',
  description: 'Asks a person',
  kind: 'client',
  side_effects: ['read'],
  input_schema: {
    type: 'object',
    properties: { question: { type: 'string' }, urgent: { type: 'boolean' } },
    required: ['question'],
    additionalProperties: false,
  },
};
const FETCH = {
  name: 'stock-price',
  description: 'Looks a price up',
  kind: 'http',
  method: 'GET',
  url: 'https://prices.example.com/{symbol}',
  side_effects: ['read'],
  input_schema: { type: 'object', properties: { symbol: { type: 'string' } }, required: ['symbol'] },
};

async function register(tool: object) {
  const answer = await api('POST', '/v1/tools', { token: await token(), body: tool });
  expect(answer.status, answer.text).toBe(201);
}

async function post(body: object, options: ApiOptions = {}) {
  return api('POST', path(), {
    token: await token(),
    body: { language: 'python', code: 'x', ...body },
    ...options,
  });
}

async function begin(body: object = {}): Promise<{ program: Program; execution: ExecutionDouble }> {
  const count = running.length;
  const answer = await post({ detach: true, ...body });
  expect(answer.status, answer.text).toBe(202);
  await host.until(() => running.length > count);
  const execution = running.at(-1);
  if (execution === undefined) throw new Error('not started');
  return { program: ProgramSchema.parse(answer.json), execution };
}

async function get(id: string): Promise<Program> {
  return ProgramSchema.parse((await api('GET', `${path()}/${id}`, { token: await token() })).json);
}

async function until(id: string, condition: (program: Program) => boolean): Promise<Program> {
  const waiting = { timeout: PATIENCE_MS, interval: 10 };
  return vi.waitUntil(async () => {
    const program = await get(id);
    return condition(program) ? program : undefined;
  }, waiting);
}

async function reply(id: string, results: object[], more: object = { detach: true }) {
  return api('POST', `${path()}/${id}/tool_results`, { token: await token(), body: { results, ...more } });
}

const isWaiting = (program: Program) => program.status === 'waiting' && program.pending.length === 1;
const pending = (count: number) => (program: Program) => program.pending.length === count;

describe('a program', () => {
  test('is an execution with the code and the tools that it may call', async () => {
    await register(FETCH);
    const { program, execution } = await begin({ code: 'tools.people.ask(question="?")' });
    expect(program).toMatchObject({ status: 'granted', language: 'python', pending: [], calls: [] });
    expect(execution.claims).toMatchObject({ tool: 'python', relay: 'full' });
    expect(execution.arguments).toMatchObject({
      code: 'tools.people.ask(question="?")',
      program: {
        tools: [
          {
            name: 'people.ask',
            path: ['people', 'ask'],
            documentation:
              'tools.people.ask(*, question: str, urgent: bool | None = None) -> Any\nAsks a person',
          },
          { name: 'stock-price', path: ['stock__price'] },
        ],
      },
    });
    await execution.finish();
    const ended = await until(program.program_id, ({ status }) => status === 'succeeded');
    expect(ended.execution.receipt).not.toBeNull();
  });

  test('answers whoever waits with its end, or with the calls that it waits for', async () => {
    const waiting = post({ code: 'x' });
    await host.until(() => running.length === 1);
    const [execution] = running;
    execution?.call(1, 'people.ask', { question: 'a' });
    execution?.call(2, 'people.ask', { question: 'b', urgent: null });
    execution?.waits();
    const first = await waiting;
    expect(first.status, first.text).toBe(202);
    const { program_id, pending: asked, status } = ProgramSchema.parse(first.json);
    expect(status).toBe('waiting');
    expect(asked.map(({ tool_name, arguments: args }) => [tool_name, args])).toEqual([
      ['people.ask', { question: 'a' }],
      ['people.ask', { question: 'b' }],
    ]);
    const answered = reply(
      program_id,
      asked.toReversed().map(({ id }, index) => ({ id, structured: { index } })),
      {},
    );
    expect(await execution?.answer(2)).toEqual({ call: 2, result: { index: 0 } });
    expect(await execution?.answer(1)).toEqual({ call: 1, result: { index: 1 } });
    execution?.goesOn();
    await execution?.finish();
    const last = await answered;
    expect(last.status, last.text).toBe(200);
    expect(ProgramSchema.parse(last.json)).toMatchObject({
      status: 'succeeded',
      pending: [],
      calls: [{ status: 'succeeded' }, { status: 'succeeded' }],
      used: { calls: 2, writes: 0 },
    });
  });

  test('streams its calls as events, and again to whoever comes back', async () => {
    const response = await request('POST', path(), {
      token: await token(),
      body: { language: 'python', code: 'x', stream: true },
    });
    const reader = new EventReader(response);
    await host.until(() => running.length === 1);
    const [execution] = running;
    await execution?.write('stdout', 'before\n');
    execution?.call(1, 'people.ask', { question: 'a' });
    const seen = await reader.until(({ data }) => data.event === 'tool_call');
    expect(seen.data).toMatchObject({ tool_name: 'people.ask', arguments: { question: 'a' } });
    const id = seen.data.event === 'tool_call' ? seen.data.id : '';
    const programId = execution?.id ?? '';
    expect((await reply(programId, [{ id, content: 'yes' }])).status).toBe(202);
    expect(await execution?.answer(1)).toEqual({ call: 1, result: 'yes' });
    execution?.call(2, 'people.ask', { question: 'b' });
    await reader.until(({ data }) => data.event === 'tool_call');
    await execution?.finish();
    await reader.until(({ data }) => data.event === 'end');
    const again = new EventReader(
      await request('GET', `/v1/sessions/${sessionId}/executions/${programId}/events`, {
        token: await token(),
      }),
    );
    await again.until(({ data }) => data.event === 'end');
    expect(again.events.map(({ data }) => data.event)).toEqual(
      ['started', 'tool_call', 'stdout', 'tool_call', 'end'].toSorted((a, b) => order(a) - order(b)),
    );
    const late = new EventReader(
      await request('GET', `/v1/sessions/${sessionId}/executions/${programId}/events`, {
        token: await token(),
        headers: { 'Last-Event-ID': seen.id },
      }),
    );
    await late.until(({ data }) => data.event === 'end');
    expect(late.events.filter(({ data }) => data.event === 'tool_call')).toHaveLength(1);
  });

  test('calls a tool of the gateway, which is answered without the caller', async () => {
    await register(FETCH);
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async (input) => {
      return new Request(input).url.endsWith('/bad')
        ? new Response('no such symbol', { status: 404 })
        : Response.json({ price: 7 });
    });
    const { program, execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'x' });
    expect(await execution.answer(1)).toEqual({ call: 1, result: { price: 7 } });
    execution.call(2, 'stock-price', { symbol: 'bad' });
    expect(await execution.answer(2)).toMatchObject({
      error: { code: 'tool_failed', message: expect.stringContaining('no such symbol') },
    });
    expect(fetched).toHaveBeenCalledTimes(2);
    const { calls } = await get(program.program_id);
    expect(calls).toMatchObject([
      { tool_name: 'stock-price', status: 'succeeded', result_bytes: 11 },
      { tool_name: 'stock-price', status: 'failed', error: { code: 'tool_failed' } },
    ]);
  });

  test.each([
    ['missing', {}, 'tool_not_found'],
    ['shell', { command: 'ls' }, 'tool_unavailable'],
    ['people.ask', {}, 'invalid_arguments'],
    ['people.ask', { question: 1 }, 'invalid_arguments'],
    ['guarded', {}, 'tool_not_found'],
    ['off', {}, 'tool_unavailable'],
    ['only-direct', {}, 'tool_unavailable'],
  ])('is refused a call of %s with %j', async (name, args, code) => {
    await register({ ...ASK, name: 'guarded', required_scopes: ['tools:secret'] });
    await register({ ...ASK, name: 'off', disabled: true });
    await register({ ...ASK, name: 'only-direct', allowed_callers: ['direct'] });
    const { program, execution } = await begin();
    const { tools } = execution.arguments.program as { tools: { name: string }[] };
    expect(tools.map((tool) => tool.name)).toEqual(['people.ask']);
    execution.call(1, name, args);
    expect(await execution.answer(1)).toMatchObject({ error: { code } });
    expect(await get(program.program_id)).toMatchObject({ calls: [{ status: 'refused', error: { code } }] });
  });

  test('may call what it names, and nothing else', async () => {
    await register({ ...ASK, name: 'other' });
    const { execution } = await begin({ tools: ['other'] });
    execution.call(1, 'people.ask', { question: 'a' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_not_found' } });
    const missing = await post({ tools: ['nothing'] });
    expect([missing.status, problemIn(missing).code]).toEqual([404, 'tool_not_found']);
    const builtIn = await post({ tools: ['shell'] });
    expect([builtIn.status, problemIn(builtIn).violations?.[0]?.path]).toEqual([400, 'body.tools.0']);
  });

  test('of a disabled tenant calls nothing any more', async () => {
    await register(FETCH);
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const { execution } = await begin();
    await env.TENANT.getByName(tenant).setDisabled(true);
    execution.call(1, 'stock-price', { symbol: 'x' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'unauthenticated' } });
    expect(fetched).not.toHaveBeenCalled();
  });

  test.each([
    ['its subject', (stub: TenantPort) => stub.revokeSubject('alice')],
    ['its token', (stub: TenantPort) => stub.revokeToken('begins-a-program')],
  ])(
    'calls nothing once %s was revoked, also when no token of that time lives any more',
    async (_, revoke) => {
      await register(FETCH);
      const fetched = vi
        .spyOn(globalThis, 'fetch')
        .mockImplementation(async () => Response.json({ price: 7 }));
      const claims = { tenant, scope: ALL_SCOPES, sub: 'alice', jti: 'begins-a-program' };
      const own = await tokenOf({ claims });
      const answer = await post({ detach: true }, { token: own });
      expect(answer.status, answer.text).toBe(202);
      await host.until(() => running.length === 1);
      await revoke(env.TENANT.getByName(tenant));
      await runInDurableObject(env.TENANT.get(env.TENANT.idFromName(tenant)), (_object, { storage }) => {
        storage.sql.exec('DELETE FROM bar');
        storage.sql.exec('DELETE FROM revoked_token');
      });
      running[0]?.call(1, 'stock-price', { symbol: 'x' });
      expect(await running[0]?.answer(1)).toMatchObject({ error: { code: 'unauthenticated' } });
      expect(fetched).not.toHaveBeenCalled();
    },
  );

  test('keeps the rights of whoever began it, and needs those of its language', async () => {
    const scope = 'sessions:read sessions:write tools:python';
    const { execution } = await (async () => {
      const answer = await post({ detach: true }, { token: await token(scope) });
      expect(answer.status, answer.text).toBe(202);
      await host.until(() => running.length === 1);
      const [found] = running;
      if (found === undefined) throw new Error('not started');
      return { execution: found };
    })();
    execution.call(1, 'people.ask', { question: 'a' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_not_found' } });
    const refused = await post({ language: 'javascript' }, { token: await token(scope) });
    expect([refused.status, problemIn(refused).code]).toEqual([403, 'insufficient_scope']);
  });
});

function order(event: string): number {
  return ['started', 'tool_call', 'stdout', 'end'].indexOf(event);
}

describe('budgets', () => {
  test.each([
    [{ calls: 1 }, 2],
    [{ calls: 0 }, 1],
    [{ bytes: 30 }, 2],
  ])('of %j stop call %i', async (limits, call) => {
    const { program, execution } = await begin({ limits });
    for (let before = 1; before < call; before += 1) {
      execution.call(before, 'people.ask', { question: 'a' });
      const { pending: asked } = await until(program.program_id, pending(1));
      await reply(program.program_id, [{ id: asked[0]?.id, content: 'b' }]);
      await execution.answer(before);
    }
    execution.call(call, 'people.ask', { question: 'a' });
    expect(await execution.answer(call)).toMatchObject({ error: { code: 'budget_exceeded' } });
  });

  test('of writes count only what may change something', async () => {
    await register({ ...ASK, name: 'change', side_effects: ['write'] });
    const { program, execution } = await begin({ limits: { writes: 1 } });
    execution.call(1, 'people.ask', { question: 'a' });
    execution.call(2, 'change', { question: 'a' });
    await until(program.program_id, pending(2));
    execution.call(3, 'change', { question: 'a' });
    expect(await execution.answer(3)).toMatchObject({ error: { code: 'budget_exceeded' } });
    expect(await get(program.program_id)).toMatchObject({ used: { calls: 3, writes: 1 } });
  });

  test('of bytes refuse a result that is too large for them', async () => {
    const { program, execution } = await begin({ limits: { bytes: 100 } });
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    await reply(program.program_id, [{ id: asked[0]?.id, content: 'x'.repeat(200) }]);
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'budget_exceeded' } });
  });

  test('keep nothing of the arguments beyond them, nor of what is settled, and end the program', async () => {
    const { program, execution } = await begin({ limits: { calls: 5_000, bytes: 30 } });
    execution.call(1, 'missing', { question: 'a' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'tool_not_found' } });
    // Numbers only rise, and one call at a time is there in part.
    host
      .session(sessionId)
      .send(
        { type: 'tool_call', execution_id: execution.id, call: 50, name: 'x', offset: 0, last: false },
        new Uint8Array(9),
      );
    for (let call = 2; call <= 102; call += 1)
      execution.call(call, 'people.ask', { question: 'b'.repeat(99) });
    execution.call(2, 'people.ask', { question: 'again' });
    await execution.interrupted;
    expect(await execution.answer(102)).toMatchObject({ error: { code: 'budget_exceeded' } });
    expect((await get(program.program_id)).calls).toHaveLength(102);
    await runInDurableObject(stubOf(), (_, { storage }) => {
      const kept = storage.sql.exec('SELECT COUNT(arguments) AS n FROM inner_call').one();
      const pieces = storage.sql.exec('SELECT COUNT(*) AS n FROM inner_call_piece').one();
      expect([kept.n, pieces.n]).toEqual([0, 0]);
    });
  });

  test('end a program that goes on calling', async () => {
    const { execution } = await begin({ limits: { calls: 0 } });
    for (let call = 1; call <= 101; call += 1) execution.call(call, 'people.ask', { question: 'a' });
    await execution.interrupted;
  });
});

describe('answers', () => {
  test('are taken once, all or none, and never of another program', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.call(2, 'people.ask', { question: 'b' });
    const { pending: asked } = await until(program.program_id, pending(2));
    const [one, two] = asked.map(({ id }) => id);
    const unknown = await reply(program.program_id, [
      { id: one, content: 'x' },
      { id: 'tcl_AAAAAAAAAAAAAAAAAAAAAA', content: 'x' },
    ]);
    expect(unknown.status).toBe(404);
    expect((await get(program.program_id)).pending).toHaveLength(2);
    expect((await reply(program.program_id, [{ id: one, error: 'no' }])).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, error: { code: 'tool_failed', message: 'no' } });
    // The same again is an answer that was heard; another is too late.
    expect((await reply(program.program_id, [{ id: one, error: 'no' }])).status).toBe(202);
    const other = await reply(program.program_id, [{ id: one, content: 'yes' }]);
    expect([other.status, problemIn(other).code]).toEqual([409, 'call_not_pending']);
    await execution.finish({ status: 'failed', exit_code: 1 });
    const ended = await until(program.program_id, ({ status }) => status === 'failed');
    expect(ended.calls.map(({ status }) => status)).toEqual(['failed', 'void']);
    const late = await reply(program.program_id, [{ id: two, content: 'x' }]);
    expect([late.status, problemIn(late).code]).toEqual([409, 'call_not_pending']);
    expect(execution.answers).toHaveLength(1);
  });

  test.each([[{}], [{ content: 'x', structured: 1 }], [{ content: 'x', error: 'y' }], [{ content: 1 }]])(
    'like %j are refused',
    async (result) => {
      const answer = await reply('exe_AAAAAAAAAAAAAAAAAAAAAA', [
        { id: 'tcl_AAAAAAAAAAAAAAAAAAAAAA', ...result },
      ]);
      expect(answer.status).toBe(400);
    },
  );

  test('of a megabyte arrive whole, and calls of one too', async () => {
    const { program, execution } = await begin();
    const question = 'é'.repeat(400_000);
    execution.call(1, 'people.ask', { question });
    const { pending: asked } = await until(program.program_id, pending(1));
    expect(asked[0]?.arguments).toEqual({ question });
    await reply(program.program_id, [{ id: asked[0]?.id, content: question }]);
    expect(await execution.answer(1)).toEqual({ call: 1, result: question });
    execution.call(2, 'people.ask', { question: 'a' });
    const { pending: next } = await until(program.program_id, pending(1));
    const tooLarge = await reply(program.program_id, [{ id: next[0]?.id, content: 'x'.repeat(1_048_000) }]);
    expect([tooLarge.status, problemIn(tooLarge).code]).toEqual([413, 'payload_too_large']);
  });

  test('and results keep integers as they are, or are refused, and never round them', async () => {
    await register(FETCH);
    vi.spyOn(globalThis, 'fetch').mockImplementation(
      async () =>
        new Response('{"price": 9007199254740993}', { headers: { 'content-type': 'application/json' } }),
    );
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    const answerWith = async (number: string) =>
      api('POST', `${path()}/${program.program_id}/tool_results`, {
        token: await token(),
        headers: { 'content-type': 'application/json' },
        raw: `{"results": [{"id": "${asked[0]?.id}", "structured": {"n": ${number}}}], "detach": true}`,
      });
    const tooLarge = await answerWith('9007199254740993');
    expect([tooLarge.status, problemIn(tooLarge).code]).toEqual([400, 'invalid_request']);
    expect((await answerWith('9007199254740991')).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, result: { n: Number.MAX_SAFE_INTEGER } });
    execution.call(2, 'stock-price', { symbol: 'x' });
    // What cannot be a number without loss is given as it came, as text.
    expect(await execution.answer(2)).toEqual({ call: 2, result: '{"price": 9007199254740993}' });
  });

  test('are sent again on a new link until the host has them', async () => {
    const { program, execution } = await begin();
    execution.confirmsAnswers = false;
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }]);
    await execution.answer(1);
    const double = host.session(sessionId);
    double.drop();
    execution.confirmsAnswers = true;
    await double.connect();
    await host.until(() => execution.answers.length === 2);
    double.drop();
    await double.connect();
    await host.until(() => double.isLinked);
    execution.call(2, 'missing', {});
    await execution.answer(2);
    expect(execution.answers.map(({ call }) => call)).toEqual([1, 1, 2]);
  });

  test('wait for a link that is down', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    const { pending: asked } = await until(program.program_id, pending(1));
    const double = host.session(sessionId);
    double.drop();
    expect((await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }])).status).toBe(202);
    await double.connect();
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'x' });
  });
});

describe('waiting', () => {
  test('outlives the gateway, and its answer comes afterwards', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    const { pending: asked } = await until(program.program_id, isWaiting);
    await evictDurableObject(stubOf());
    expect(await get(program.program_id)).toMatchObject({ status: 'waiting', pending: asked });
    await abortAllDurableObjects();
    const double = host.session(sessionId);
    await double.connect();
    expect((await reply(program.program_id, [{ id: asked[0]?.id, content: 'x' }])).status).toBe(202);
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'x' });
    execution.goesOn();
    await execution.finish();
    await until(program.program_id, ({ status }) => status === 'succeeded');
  });

  test('lost before its grant was signed leaves nothing behind, and runs once when it is asked for again', async () => {
    const headers = { 'Idempotency-Key': 'once' };
    const asked = { headers, token: await token(), body: { language: 'python', code: 'x', detach: true } };
    const sign = crypto.subtle.sign.bind(crypto.subtle);
    let isGranting = false;
    const signed = vi.spyOn(crypto.subtle, 'sign').mockImplementation((algorithm, ...given) => {
      if (algorithm === 'HMAC') return sign(algorithm, ...given);
      isGranting = true;
      return new Promise(() => undefined);
    });
    // Who asked is gone too.
    void api('POST', path(), asked).catch(() => undefined);
    await vi.waitFor(() => expect(isGranting).toBe(true));
    signed.mockRestore();
    await runInDurableObject(stubOf(), (_, { storage }) => storage.sync());
    await abortAllDurableObjects();
    await host.session(sessionId).connect();
    const again = await api('POST', path(), asked);
    expect(again.status, again.text).toBe(202);
    await host.until(() => running.length === 1);
    const { program_id } = ProgramSchema.parse(again.json);
    expect(running[0]?.id).toBe(program_id);
    await running[0]?.finish();
    await until(program_id, ({ status }) => status === 'succeeded');
    expect(running).toHaveLength(1);
  });

  test('a call of a gateway tool whose end an abort took is unknown, unless it may be repeated', async () => {
    await register(FETCH);
    await register({ ...FETCH, name: 'again', side_effects: ['read', 'idempotent'] });
    const hanging = vi.spyOn(globalThis, 'fetch').mockImplementation(() => new Promise(() => undefined));
    const { program, execution } = await begin();
    execution.call(1, 'stock-price', { symbol: 'x' });
    execution.call(2, 'again', { symbol: 'x' });
    await eventually(() => expect(hanging).toHaveBeenCalledTimes(2));
    const double = host.session(sessionId);
    await host.until(() => double.ackedSeq === double.lastSeq);
    hanging.mockImplementation(async () => Response.json({ price: 1 }));
    await abortAllDurableObjects();
    await double.connect();
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'unknown' } });
    expect(await execution.answer(2)).toEqual({ call: 2, result: { price: 1 } });
    expect((await get(program.program_id)).calls.map(({ status }) => status)).toEqual([
      'unknown',
      'succeeded',
    ]);
    expect(hanging).toHaveBeenCalledTimes(3);
  });

  test('does not count against the deadline, and ends at its own', async () => {
    const { program, execution } = await begin({ limits: { timeout_ms: 20_000, wait_timeout_s: 60 } });
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits(15_000);
    await until(program.program_id, isWaiting);
    const nowMs = Date.now();
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs + 50_000 });
    await runDurableObjectAlarm(stubOf());
    expect((await get(program.program_id)).status).toBe('waiting');
    vi.setSystemTime(nowMs + 61_000);
    await runDurableObjectAlarm(stubOf());
    vi.useRealTimers();
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'wait_timeout' } });
  });

  test('gives a program no time that it did not have', async () => {
    const { program, execution } = await begin({ limits: { timeout_ms: 10_000 } });
    const nowMs = Date.now();
    execution.waits(60_000);
    await until(program.program_id, ({ status }) => status === 'waiting');
    execution.goesOn(60_000);
    await until(program.program_id, ({ status }) => status === 'running');
    await runInDurableObject(stubOf(), (_, { storage }) => {
      const [row] = storage.sql.exec('SELECT leftMs FROM program_clock').toArray();
      expect(row?.leftMs).toBe(10_000);
    });
    vi.useFakeTimers({ toFake: ['Date'], now: nowMs + 20_000 });
    await runDurableObjectAlarm(stubOf());
    vi.useRealTimers();
    await execution.interrupted;
  });

  test('ends with the program when it is cancelled', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    await until(program.program_id, isWaiting);
    const cancelled = await api('POST', `${path()}/${program.program_id}/cancel`, { token: await token() });
    expect(cancelled.status, cancelled.text).toBe(202);
    await execution.interrupted;
    execution.goesOn();
    await execution.finish({ status: 'interrupted', exit_code: null });
    expect(await until(program.program_id, ({ status }) => status === 'interrupted')).toMatchObject({
      pending: [],
      calls: [{ status: 'void' }],
    });
  });

  test('ends as unknown when the sandbox is lost', async () => {
    const { program, execution } = await begin();
    execution.call(1, 'people.ask', { question: 'a' });
    execution.waits();
    await until(program.program_id, isWaiting);
    host.session(sessionId).send({ type: 'sandbox_lost', reason: 'host_restarted' });
    expect(await until(program.program_id, ({ status }) => status === 'unknown')).toMatchObject({
      pending: [],
      calls: [{ status: 'void' }],
    });
  });
});

test('a program wakes a suspended session, and one that was begun before does not', async () => {
  const headers = { 'Idempotency-Key': 'wakes' };
  const begun = await begin();
  await begun.execution.finish();
  await until(begun.program.program_id, ({ status }) => status === 'succeeded');
  const suspend = async () => {
    const answer = await api('POST', `/v1/sessions/${sessionId}/suspend`, { token: await token() });
    expect(answer.status, answer.text).toBeLessThan(300);
  };
  const state = async () => {
    const answer = await api('GET', `/v1/sessions/${sessionId}`, { token: await token() });
    return SessionSchema.parse(answer.json).state;
  };
  await suspend();
  const waking = await post(
    { detach: true },
    { headers, body: { language: 'python', code: 'x', detach: true } },
  );
  expect(waking.status, waking.text).toBe(202);
  await host.until(() => running.length === 2);
  await running[1]?.finish();
  const { program_id: id } = ProgramSchema.parse(waking.json);
  await until(id, ({ status }) => status === 'succeeded');
  await suspend();
  const again = await post({}, { headers, body: { language: 'python', code: 'x', detach: true } });
  expect(ProgramSchema.parse(again.json).program_id).toBe(id);
  expect(await state()).toBe('suspended');
});

test('with an idempotency key a program is begun once', async () => {
  const headers = { 'Idempotency-Key': 'k1' };
  const body = { detach: true };
  const first = ProgramSchema.parse(
    (await post(body, { headers, body: { language: 'python', code: 'x', ...body } })).json,
  );
  const second = ProgramSchema.parse(
    (await post(body, { headers, body: { language: 'python', code: 'x', ...body } })).json,
  );
  expect(second.program_id).toBe(first.program_id);
  await host.until(() => running.length === 1);
});

describe('a tool for code only', () => {
  const CODE_ONLY = { ...ASK, name: 'quiet', allowed_callers: ['code_execution_20250825', 'programmatic'] };
  const names = async (query: string) => {
    const answer = await api('GET', `/v1/tools${query}`, { token: await token() });
    return ListedSchema.parse(answer.json).tools;
  };

  test('is not offered directly, and is offered to code', async () => {
    await register(CODE_ONLY);
    expect((await names('')).map(({ name }) => name)).not.toContain('quiet');
    expect((await names('?format=anthropic')).map(({ name }) => name)).not.toContain('quiet');
    expect((await names('/search?q=quiet%20asks%20a%20person')).map(({ name }) => name)).not.toContain(
      'quiet',
    );
    const anthropic = (await names('?format=anthropic&callers=any')).find(({ name }) => name === 'quiet');
    expect(anthropic).toMatchObject({ allowed_callers: ['code_execution_20250825'] });
    const openai = (await names('?format=openai-responses&callers=any')).find(({ name }) => name === 'quiet');
    expect(openai).toMatchObject({ allowed_callers: ['programmatic'] });
    const body = { tool_name: 'quiet', arguments: { question: 'a' } };
    const refused = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await token(), body });
    expect(problemIn(refused)).toMatchObject({
      code: 'tool_unavailable',
      detail: expect.stringContaining('programs only'),
    });
    const { tools } = ProgramToolsSchema.parse(
      (await api('GET', '/v1/program-tools', { token: await token() })).json,
    );
    expect(tools.map(({ name }) => name)).toEqual(['people.ask', 'quiet']);
  });

  test('is called by code that a model API runs, if the call says so', async () => {
    await register({ ...FETCH, name: 'price', allowed_callers: ['code_execution_20250825'] });
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const ask = async (caller?: object) => {
      const content = [{ type: 'tool_use', id: 't1', name: 'price', input: { symbol: 'x' }, caller }];
      const body = { role: 'assistant', content };
      return (await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token: await token(), body })).text;
    };
    expect(await ask({ type: 'code_execution_20250825', tool_id: 'srv_1' })).toContain(
      '"status":"succeeded"',
    );
    expect(await ask({ type: 'direct' })).toContain('programs only');
    expect(await ask()).toContain('programs only');
  });
});

test('over MCP a program is run, asks, and is answered', async () => {
  const tools = async (id: number, name: string, args: object) => {
    const { messages } = await rpc(call(id, name, { session_id: sessionId, ...args }), {
      token: await token(),
    });
    return McpResultSchema.parse(messages[0]?.result);
  };
  const asking = tools(1, 'run_program', { language: 'python', code: 'x' });
  await host.until(() => running.length === 1);
  const [execution] = running;
  execution?.call(1, 'people.ask', { question: 'a' });
  execution?.waits();
  const { content, structuredContent: asked } = await asking;
  expect(content[0]?.text).toContain('waits for 1 of your tools');
  const [one] = asked.pending;
  expect(one).toMatchObject({ tool_name: 'people.ask', arguments: { question: 'a' } });
  const answering = tools(2, 'answer_program', {
    program_id: asked.program_id,
    results: [{ id: one?.id, content: 'yes' }],
  });
  expect(await execution?.answer(1)).toEqual({ call: 1, result: 'yes' });
  execution?.goesOn();
  execution?.part('value', "'yes'");
  await execution?.finish();
  const ended = await answering;
  expect(ended).toMatchObject({ structuredContent: { status: 'succeeded', pending: [] } });
  expect(ended.content[0]?.text).toContain("'yes'");
});

const ListedSchema = z.object({ tools: z.array(z.looseObject({ name: z.string() })) });
const ProgramToolsSchema = z.object({ tools: z.array(z.object({ name: z.string() })) });
const McpResultSchema = z.looseObject({
  content: z.array(z.looseObject({ text: z.string() })),
  structuredContent: ProgramSchema.pick({ program_id: true, status: true, pending: true }),
});

function stubOf() {
  return env.SESSION.get(env.SESSION.idFromName(`${tenant}:${sessionId}`));
}
