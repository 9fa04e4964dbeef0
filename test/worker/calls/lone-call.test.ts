/** Calls that the gateway makes in no session: what there is of them is in the answer, and kept for a key. */
import { abortAllDurableObjects, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { sha256Hex } from '../../../shared/digest.ts';
import { verifyEdgeReceipt } from '../../../shared/edge-receipt-verify.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId, newSessionId } from '../../../shared/ids.ts';
import { TERMINAL_GRACE_MS } from '../../../shared/limits.ts';
import { readConfiguration } from '../../../worker/configuration.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { edgeExecutionBegun } from '../../../worker/tools/edge-execution.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import { connectClient } from '../mcp/clients.ts';

let tenants = 0;
let tenant: string;

const ask = async (method: string, route: string, options: ApiOptions = {}) =>
  api(method, route, { token: await tokenOf({ claims: { tenant } }), ...options });

beforeEach(async () => {
  tenants += 1;
  tenant = `lone-${tenants}`;
  expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input) =>
    new Request(input).url.endsWith('/bad')
      ? new Response('no such symbol', { status: 404 })
      : Response.json({ price: 7 }),
  );
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe('a call that the gateway makes in no session', () => {
  test('has a receipt: a chain of one, in the answer and at the end of its stream', async () => {
    const { keySet } = await readConfiguration(env);
    const keys = { edge: keySet.receipt_keys, hosts: [] };
    const body = { tool_name: 'stock-price', arguments: { symbol: 'x' } };
    const answer = await ask('POST', '/v1/execute', { body });
    expect(answer.status, answer.text).toBe(200);
    const streamed = await ask('POST', '/v1/execute', { body, headers: { Accept: 'text/event-stream' } });
    const end = streamed.text.split('\n').findLast((line) => line.startsWith('data: ')) ?? '';
    const ended = z.object({ execution: ExecutionSchema }).parse(JSON.parse(end.slice('data: '.length)));
    for (const execution of [ExecutionSchema.parse(answer.json), ended.execution]) {
      expect(await verifyEdgeReceipt(execution.receipt, keys)).toMatchObject({
        ok: true,
        value: {
          value: {
            execution_id: execution.execution_id,
            session_id: execution.session_id,
            tenant_sha256: await sha256Hex(tenant),
            seq: 1,
            host_chain: { seq: 0 },
            args_sha256: await sha256Hex('{"symbol":"x"}'),
            result: { sha256: await sha256Hex('{"price":7}'), bytes: 11 },
          },
        },
      });
      const none = await ask('GET', `/v1/sessions/${execution.session_id}`);
      expect(problemIn(none).code).toBe('not_found');
    }
    const failed = await ask('POST', '/v1/execute', {
      body: { tool_name: 'stock-price', arguments: { symbol: 'bad' } },
    });
    const receipt = await verifyEdgeReceipt(ExecutionSchema.parse(failed.json).receipt, keys);
    expect(receipt).toMatchObject({ ok: true, value: { value: { status: 'failed' } } });
  });

  describe('with a key', () => {
    const body = { tool_name: 'stock-price', arguments: { symbol: 'x' } };
    const keyed = (options: ApiOptions = {}) =>
      ask('POST', '/v1/execute', { body, headers: { 'Idempotency-Key': 'once' }, ...options });

    test('is made once, however often it is asked for, also after a restart, and all answers are equal', async () => {
      const fetched = vi.mocked(globalThis.fetch).mockClear();
      const answers = await Promise.all(Array.from({ length: 100 }, () => keyed()));
      await abortAllDurableObjects();
      answers.push(await keyed());
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      const [first] = answers;
      for (const { json } of answers) expect(json).toEqual(first?.json);
      expect(ExecutionSchema.parse(first?.json).receipt).not.toBeNull();
      const streamed = await keyed({ headers: { 'Idempotency-Key': 'once', Accept: 'text/event-stream' } });
      expect(streamed.text).toContain(ExecutionSchema.parse(first?.json).execution_id);
      expect(fetched).toHaveBeenCalledTimes(1);
    });

    test('streams to whoever asks again while it is made', async () => {
      const server = { mayAnswer: false };
      const fetched = vi.mocked(globalThis.fetch).mockClear();
      fetched.mockImplementation(async () => {
        await eventually(() => expect(server.mayAnswer).toBe(true));
        return Response.json({ price: 7 });
      });
      const token = await tokenOf({ claims: { tenant } });
      const headers = { 'Idempotency-Key': 'once', Accept: 'text/event-stream' };
      const first = keyed();
      await eventually(() => expect(fetched).toHaveBeenCalledTimes(1));
      const again = await request('POST', '/v1/execute', { token, body, headers });
      if (again.body === null) throw new Error('it is no stream');
      const [head, whole] = again.body.tee();
      const { value } = await head.getReader().read();
      expect(new TextDecoder().decode(value)).toContain('event: started');
      server.mayAnswer = true;
      const { execution_id, status } = ExecutionSchema.parse((await first).json);
      expect(status).toBe('succeeded');
      const text = await new Response(whole).text();
      expect(text).toContain('event: end');
      expect(text).toContain(execution_id);
      expect(fetched).toHaveBeenCalledTimes(1);
    });

    test('is another one for another tenant and another subject, and a conflict with another body', async () => {
      const fetched = vi.mocked(globalThis.fetch).mockClear();
      const mine = ExecutionSchema.parse((await keyed()).json);
      const others = ExecutionSchema.parse(
        (await keyed({ token: await tokenOf({ claims: { tenant, sub: 'bob' } }) })).json,
      );
      tenant = `${tenant}-other`;
      expect((await ask('POST', '/v1/tools', { body: STOCK_PRICE })).status).toBe(201);
      const theirs = ExecutionSchema.parse((await keyed()).json);
      expect(new Set([mine, others, theirs].map(({ execution_id }) => execution_id)).size).toBe(3);
      expect(fetched).toHaveBeenCalledTimes(3);
      for (const call of [
        { ...body, arguments: { symbol: 'y' } },
        { tool_name: 'shell', arguments: { command: 'x' } },
      ]) {
        expect(problemIn(await keyed({ body: call }))).toMatchObject({
          status: 422,
          code: 'idempotency_conflict',
        });
      }
      expect(fetched).toHaveBeenCalledTimes(3);
    });

    test('is made once over MCP too', async () => {
      const fetched = vi.mocked(globalThis.fetch).mockClear();
      const client = await connectClient('2026-07-28', await tokenOf({ claims: { tenant } }));
      const call = { name: 'stock-price', arguments: { symbol: 'x', idempotency_key: 'once' } };
      const [first, second] = [await client.callTool(call), await client.callTool(call)];
      expect(first.isError).not.toBe(true);
      expect(second.content).toEqual(first.content);
      await client.close();
      expect(fetched).toHaveBeenCalledTimes(1);
    });

    test('whose maker was lost is unknown in time for who waits for it, and never made again', async () => {
      const sessionId = await newSessionId((await readConfiguration(env)).tagKey, tenant);
      const object = env.KEYED_CALL.get(env.KEYED_CALL.idFromName(sessionObjectName(tenant, sessionId)));
      const calls = env.KEYED_CALL.getByName(sessionObjectName(tenant, sessionId));
      const call = () => {
        const ids = { sessionId, executionId: newId('exe') };
        const facts = { ...ids, toolName: 'x', receivedMs: Date.now(), startedMs: Date.now() };
        const made = { toolVersion: '1', argsSha256: '', timeoutMs: 1_000, startedAtMs: Date.now() };
        return { execution: edgeExecutionBegun(facts), made, timeoutMs: 1_000 };
      };
      const first = call();
      expect(await calls.begin({ tenant, sessionId }, first)).toMatchObject({ value: null });
      // Whoever was not answered asks again for the same one.
      expect(await calls.begin({ tenant, sessionId }, first)).toMatchObject({ value: null });
      expect(await calls.begin({ tenant, sessionId }, call())).toMatchObject({
        value: { execution_id: first.execution.execution_id, status: 'running' },
      });
      const waiting = calls.ended();
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 1_000 + TERMINAL_GRACE_MS });
      await runDurableObjectAlarm(object);
      expect(await waiting).toMatchObject({
        value: { execution_id: first.execution.execution_id, status: 'unknown', reason: 'end_not_seen' },
      });
      const late = { ...first.execution, status: 'succeeded' as const };
      expect(await calls.end(late)).toMatchObject({ value: null });
      expect(await calls.begin({ tenant, sessionId }, call())).toMatchObject({
        value: { status: 'unknown' },
      });
      vi.setSystemTime(Date.now() + 2 * 86_400_000);
      await runDurableObjectAlarm(object);
      const left = await runInDurableObject(object, (_object, { storage }) =>
        storage.sql.exec("SELECT name FROM sqlite_master WHERE name LIKE '%call%'").toArray(),
      );
      expect(left).toEqual([]);
    });
  });
});
