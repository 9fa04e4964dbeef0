/** Calls that the gateway makes in no session: what there is of them is in the answer alone. */
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { sha256Hex } from '../../../shared/digest.ts';
import { verifyEdgeReceipt } from '../../../shared/edge-receipt-verify.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { readConfiguration } from '../../../worker/configuration.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
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

  test('takes no key, over REST or over MCP: nothing is kept that could answer it the second time', async () => {
    const fetched = vi.mocked(globalThis.fetch).mockClear();
    const body = { tool_name: 'stock-price', arguments: { symbol: 'x' } };
    for (const stream of [false, true]) {
      const headers = { 'Idempotency-Key': 'once' };
      const answer = await ask('POST', '/v1/execute', { body: { ...body, stream }, headers });
      expect(problemIn(answer)).toMatchObject({
        status: 400,
        code: 'invalid_request',
        violations: [{ path: 'header.Idempotency-Key', expected: expect.stringContaining('in a session') }],
      });
    }
    const client = await connectClient('2026-07-28', await tokenOf({ claims: { tenant } }));
    const call = { name: 'stock-price', arguments: { symbol: 'x', idempotency_key: 'once' } };
    expect(await client.callTool(call)).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('arguments.idempotency_key: expected nothing') }],
    });
    await client.close();
    expect(fetched).not.toHaveBeenCalled();
  });
});
