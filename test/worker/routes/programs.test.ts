/** Programs at the edge: begun once, told as they go, and ended with all that they began. */
import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { TenantLimitsSchema } from '../../../shared/tenant.ts';
import type { TenantPort } from '../../../worker/objects/tenant/port.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { EventReader } from '../harness/event-reader.ts';
import { ASK, STOCK_PRICE } from '../harness/example-tools.ts';
import {
  begin,
  get,
  host,
  path,
  post,
  register,
  reply,
  running,
  sessionId,
  tenant,
  token,
  until,
  useProgramSession,
} from '../harness/program-session.ts';

useProgramSession();

describe('a program', () => {
  test('is an execution with the code and the tools that it may call', async () => {
    await register(STOCK_PRICE);
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
    await register(STOCK_PRICE);
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
    await register(STOCK_PRICE);
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const { execution } = await begin();
    await env.TENANT.getByName(tenant).setDisabled(true);
    execution.call(1, 'stock-price', { symbol: 'x' });
    expect(await execution.answer(1)).toMatchObject({ error: { code: 'unauthenticated' } });
    expect(fetched).not.toHaveBeenCalled();
  });

  test('spends the requests of its caller, and is told when there are more', async () => {
    await register(STOCK_PRICE);
    const fetched = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const { execution } = await begin();
    const stub = env.TENANT.getByName(tenant);
    await stub.setLimits(tenant, TenantLimitsSchema.parse({ tenant: { requests_per_minute: 2 } }));
    for (const call of [1, 2, 3]) {
      execution.call(call, 'stock-price', { symbol: 'x' });
      if (call < 3) expect(await execution.answer(call)).toMatchObject({ result: { price: 7 } });
    }
    expect(await execution.answer(3)).toMatchObject({
      error: {
        code: 'rate_limited',
        message: expect.stringMatching(/^the tenant may make 2 requests a minute, the next one in \d+ s$/),
      },
    });
    expect(fetched).toHaveBeenCalledTimes(2);
  });

  test('takes little more out of the rate of its caller than it spends', async () => {
    await register(STOCK_PRICE);
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const { execution } = await begin();
    const stub = env.TENANT.getByName(tenant);
    const left = async () => {
      const lease = await stub.leaseRequests(0, { tenant });
      return lease.ok ? lease.value.remaining : Number.NaN;
    };
    const before = await left();
    for (const call of [1, 2, 3, 4, 5]) {
      execution.call(call, 'stock-price', { symbol: 'x' });
      expect(await execution.answer(call)).toMatchObject({ result: { price: 7 } });
    }
    expect(before - (await left())).toBeLessThanOrEqual(10);
  });

  test.each([
    ['its subject', (stub: TenantPort) => stub.revokeSubject('alice')],
    ['its token', (stub: TenantPort) => stub.revokeToken('begins-a-program')],
  ])(
    'calls nothing once %s was revoked, also when no token of that time lives any more',
    async (_, revoke) => {
      await register(STOCK_PRICE);
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
