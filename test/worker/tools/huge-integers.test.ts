/** Integers that no double comes near, by each road to a tool: refused with what to do instead, never rounded and never a fault of ours. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../../shared/session.ts';
import { ToolSourceSchema } from '../../../shared/tool-source.ts';
import { detailIn, send } from '../adapters/adapter-client.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { modern, rpc } from '../mcp/rpc.ts';
import { Internet } from '../sources/stand-ins.ts';

let token: string;
let sessionId: string;
let host: Awaited<ReturnType<typeof connectFakeHost>>;
const ran: string[] = [];

beforeAll(async () => {
  const script: Parameters<typeof connectFakeHost>[0] = {
    script: async (execution) => {
      ran.push(JSON.stringify(execution.arguments));
      execution.started();
      await execution.finish();
    },
  };
  host = await connectFakeHost(script);
  token = await tokenOf({ claims: { tenant: 'huge', sub: 'alice', scope: ALL_SCOPES } });
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
afterAll(() => host.close());

const JSON_TYPE = { 'Content-Type': 'application/json' };
const post = (path: string, raw: string) => api('POST', path, { token, raw, headers: JSON_TYPE });
const ADVICE = 'send larger ones as strings';

describe.each([308, 309, 310, 400, 5_000, 100_000])('an argument of %d digits', (count) => {
  const digits = '1'.repeat(count);
  const args = `{"command":"true","n":${digits}}`;

  test('is refused by REST', async () => {
    const answer = await post(
      `/v1/sessions/${sessionId}/execute`,
      `{"tool_name":"shell","arguments":${args}}`,
    );
    expect(answer.status).toBe(400);
    expect(problemIn(answer).violations).toMatchObject([
      { path: 'body.arguments.n', expected: expect.stringContaining(ADVICE) },
    ]);
  });

  test('is refused in a message of a model, or told to it', async () => {
    const message = (written: string) =>
      `{"tool_calls":[{"id":"c1","type":"function","function":{"name":"shell","arguments":${written}}}]}`;
    const asText = await post(`/v1/sessions/${sessionId}/tool_calls`, message(JSON.stringify(args)));
    expect(asText.status).toBe(200);
    expect(asText.text).toContain(ADVICE);
    const asObject = await post(`/v1/sessions/${sessionId}/tool_calls`, message(args));
    expect(asObject.status).toBe(400);
    expect(asObject.text).toContain(ADVICE);
  });

  test('is refused over MCP in both eras', async () => {
    const { body, headers } = modern({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'shell', arguments: { command: 'true', n: '#' } },
    });
    const call = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'shell', arguments: { command: 'true', n: '#' } },
    });
    for (const answer of [
      await rpc(call.replace('"#"', digits), { token }),
      await rpc(JSON.stringify(body).replace('"#"', digits), { token, headers }),
    ]) {
      expect(answer.status).toBeLessThan(500);
      expect(answer.text).toContain(ADVICE);
    }
  });

  test('is refused to clients of other servers', async () => {
    const basic = { Authorization: `Basic ${btoa(`any:${token}`)}`, ...JSON_TYPE };
    const xagent = await send('POST', '/xagent/execute_tool', {
      headers: { ...basic, 'Node-Id': sessionId },
      raw: `{"tool_name":"shell","arguments":${args}}`,
    });
    const enclave = await send('POST', '/ms-enclave/sandbox/tool/execute', {
      headers: { 'X-API-Key': token, ...JSON_TYPE },
      raw: `{"sandbox_id":"${sessionId}","tool_name":"shell","parameters":${args}}`,
    });
    for (const answer of [xagent, enclave]) {
      expect([400, 422]).toContain(answer.status);
      expect(JSON.stringify(detailIn(answer))).toContain(ADVICE);
    }
  });

  test('has run nothing', () => {
    expect(ran).toEqual([]);
  });
});

test('a number with an exponent that no double holds is refused too', async () => {
  const answer = await post(
    `/v1/sessions/${sessionId}/execute`,
    '{"tool_name":"shell","arguments":{"command":"true","n":1e400}}',
  );
  expect(problemIn(answer).violations).toMatchObject([{ expected: 'a number within the range of a double' }]);
});

describe('a bound in a schema', () => {
  const toolOf = (name: string, digits: string) =>
    `{"name":"${name}","description":"By number","kind":"client","input_schema":{"type":"object","properties":{"n":{"type":"number","maximum":${digits}}}}}`;

  test('of 400 digits is kept digit by digit, and checked against', async () => {
    const digits = '7'.repeat(400);
    const created = await post('/v1/tools', toolOf('wide', digits));
    expect(created.status, created.text).toBe(201);
    expect(created.text).toContain(`"maximum":${digits}}`);
    expect((await api('GET', '/v1/tools/wide', { token })).text).toContain(`"maximum":${digits}}`);
    const below = await post('/v1/tools', toolOf('narrow', `-${digits}`));
    expect(below.status, below.text).toBe(201);
    const call = await post(
      `/v1/sessions/${sessionId}/execute`,
      '{"tool_name":"narrow","arguments":{"n":1}}',
    );
    expect(problemIn(call).violations).toMatchObject([{ expected: `at most -${digits}` }]);
  });

  test('of more than a thousand is refused', async () => {
    const refused = await post('/v1/tools', toolOf('wider', '7'.repeat(1_001)));
    expect(problemIn(refused).violations).toMatchObject([
      { path: expect.stringContaining('maximum'), expected: 'an integer of at most 1000 digits' },
    ]);
  });

  test('that an MCP server has is kept, or its tool is broken, and not the others', async () => {
    const internet = new Internet();
    internet.start();
    const schemaOf = (digits: string) => `{"type":"object","properties":{"n":{"maximum":${digits}}}}`;
    const kept = '7'.repeat(400);
    const listed = `{"tools":[{"name":"kept","inputSchema":${schemaOf(kept)}},{"name":"wide","inputSchema":${schemaOf('7'.repeat(2_000))}},{"name":"plain","inputSchema":{"type":"object"}}]}`;
    internet.host('mcp.example.com', async (request) => {
      if (request.method !== 'POST') return new Response(null, { status: 405 });
      const asked = z.object({ id: z.union([z.number(), z.string()]).optional(), method: z.string() });
      const { id, method } = asked.parse(await request.json());
      if (id === undefined) return new Response(null, { status: 202 });
      const hello =
        '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';
      const result = method === 'initialize' ? hello : method === 'tools/list' ? listed : undefined;
      const end = result === undefined ? '"error":{"code":-32601,"message":"no"}' : `"result":${result}`;
      return new Response(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},${end}}`, { headers: JSON_TYPE });
    });
    const source = { kind: 'mcp_http', name: 'numbers', url: 'https://mcp.example.com/mcp' };
    expect((await api('POST', '/v1/tool_sources', { token, body: source })).status).toBe(201);
    const asked = await api('POST', '/v1/tool_sources/numbers/refresh', { token });
    expect(ToolSourceSchema.parse(asked.json)).toMatchObject({ tool_count: 3, broken_count: 1 });
    const text = async (name: string) => (await api('GET', `/v1/tools/numbers.${name}`, { token })).text;
    expect(await text('kept')).toContain(`"maximum":${kept}}`);
    expect(await text('wide')).toMatch(/"status":"broken"/);
    expect(await text('plain')).toMatch(/"status":"ready"/);
    vi.restoreAllMocks();
  });
});
