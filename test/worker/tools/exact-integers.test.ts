/** Bounds of 64-bit integers in the schemas of tools: whoever brings them and whatever gives them, digit by digit. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { ToolSourceSchema } from '../../../shared/tool-source.ts';
import { TOOL_FORMATS } from '../../../worker/formats/export.ts';
import { send } from '../adapters/adapter-client.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { modern, rpc } from '../mcp/rpc.ts';
import { Internet } from '../sources/stand-ins.ts';

const LEAST = '-9223372036854775808';
const MOST = '9223372036854775807';
const ODD = '9007199254740993';
/** As text: what JavaScript makes of it is what is tried here. */
const SCHEMA = `{"type":"object","required":["id"],"properties":{
  "id":{"type":"integer","minimum":${LEAST},"maximum":${MOST}},
  "of":{"enum":["any",${ODD}]}}}`;

let token: string;
let host: Awaited<ReturnType<typeof connectFakeHost>>;

beforeAll(async () => {
  host = await connectFakeHost();
  token = await tokenOf({ claims: { tenant: 'exact', sub: 'alice', scope: ALL_SCOPES } });
});
afterEach(() => vi.restoreAllMocks());
afterAll(() => host.close());

const post = (path: string, raw: string) =>
  api('POST', path, { token, raw, headers: { 'Content-Type': 'application/json' } });

const toolText = (name: string, field = 'input_schema') =>
  `{"name":"${name}","description":"Finds a record by its number","kind":"client","${field}":${SCHEMA}}`;

function expectDigits(text: string, digits = [LEAST, MOST, ODD]): void {
  for (const integer of digits) expect(text).toMatch(new RegExp(`(?<![-\\d])${integer}(?!\\d)`));
  expect(text).not.toMatch(/922337203685477[0-46-9]|9223372036854776000|9007199254740992/);
}

describe('a tool registered by REST', () => {
  test('is answered, read, listed and found with the digits that it came with', async () => {
    const created = await post('/v1/tools', toolText('record'));
    expect(created.status, created.text).toBe(201);
    expectDigits(created.text);
    expect((await post('/v1/tools', toolText('record'))).status, 'the same once more').toBe(200);
    for (const path of ['/v1/tools/record', '/v1/tools', '/v1/tools/search?q=record+by+its+number']) {
      expectDigits((await api('GET', path, { token })).text);
    }
  });

  test('of many at once, or by what it gives, is no different', async () => {
    const many = `{"tools":[${toolText('second')},${toolText('third', 'output_schema')}]}`;
    expect((await post('/v1/tools', many)).json).toMatchObject({
      tools: [{ status: 'created' }, { status: 'created' }],
    });
    expectDigits((await api('GET', '/v1/tools/second', { token })).text);
    expectDigits((await api('GET', '/v1/tools/third', { token })).text);
  });

  test.each(TOOL_FORMATS)(
    'is exported in the format %s with every digit that this has a place for',
    async (format) => {
      const { text } = await api('GET', `/v1/tools?format=${format}`, { token });
      const isCode = format === 'typescript' || format === 'python';
      expectDigits(text, isCode ? [] : [LEAST, MOST]);
    },
  );

  test('is listed with them over MCP in both eras, and to clients of other servers', async () => {
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    expectDigits((await rpc(list, { token })).text);
    const { body, headers } = modern(list);
    expectDigits((await rpc(body, { token, headers })).text);
    const search = { name: 'search_tools', arguments: { query: 'record by its number' } };
    expectDigits(
      (await rpc({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: search }, { token })).text,
    );
    const basic = { Authorization: `Basic ${btoa(`any:${token}`)}` };
    expectDigits((await send('POST', '/xagent/get_available_tools', { headers: basic })).text);
  });

  test('is checked by them', async () => {
    const session = await api('POST', '/v1/sessions', { token, body: {} });
    const { session_id } = session.json as { session_id: string };
    const call = (args: string) =>
      post(`/v1/sessions/${session_id}/execute`, `{"tool_name":"record","arguments":${args}}`);
    expect(problemIn(await call('{"id":1e19}')).violations).toMatchObject([{ expected: `at most ${MOST}` }]);
    expect(problemIn(await call('{"id":-1e19}')).violations).toMatchObject([
      { expected: `at least ${LEAST}` },
    ]);
    expect(problemIn(await call('{"id":1,"of":2}')).violations).toMatchObject([
      { expected: `one of "any", ${ODD}` },
    ]);
    expect(problemIn(await call(`{"id":${MOST}}`)).violations).toMatchObject([
      { path: 'body.arguments.id', expected: expect.stringContaining('send larger ones as strings') },
    ]);
  });

  test('has them in its schemas only', async () => {
    const elsewhere = toolText('record').replace('"kind"', `"timeout_ms":${MOST},"kind"`);
    expect(problemIn(await post('/v1/tools', elsewhere)).violations).toMatchObject([
      { path: 'body.timeout_ms', expected: expect.stringContaining('2^53') },
    ]);
  });
});

describe('a source', () => {
  async function ready(body: object): Promise<void> {
    const { name } = body as { name: string };
    expect((await api('POST', '/v1/tool_sources', { token, body })).status).toBe(201);
    const asked = await api('POST', `/v1/tool_sources/${name}/refresh`, { token });
    expect(ToolSourceSchema.parse(asked.json)).toMatchObject({
      status: 'ready',
      tool_count: 1,
      broken_count: 0,
    });
  }
  const json = { headers: { 'Content-Type': 'application/json' } };

  test('that is a manifest brings them', async () => {
    const internet = new Internet();
    internet.start();
    const manifest = `{"tools":[{"name":"row","description":"A row","url":"/rows","input_schema":${SCHEMA}}]}`;
    internet.host('manifest.example.com', () => new Response(manifest, json));
    await ready({ kind: 'manifest', name: 'rows', url: 'https://manifest.example.com/tools.json' });
    expectDigits((await api('GET', '/v1/tools/rows.row', { token })).text);
  });

  test.each(['one message', 'a stream'])('that is an MCP server brings them, in %s', async (way) => {
    const internet = new Internet();
    internet.start();
    const isStream = way === 'a stream';
    internet.host('mcp.example.com', async (request) => {
      if (request.method !== 'POST') return new Response(null, { status: 405 });
      const { id, method } = await request.json<{ id?: number | string; method: string }>();
      if (id === undefined) return new Response(null, { status: 202 });
      const hello =
        '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';
      // A rounded integer of its own, and a note that leads nowhere, change nothing.
      const listed = `{"_meta":{"sandgate/integers":[["__proto__",[["x","${MOST}"]]]]},
        "tools":[{"name":"row","inputSchema":${SCHEMA},"outputSchema":${SCHEMA}}]}`.replaceAll('\n', ' ');
      const answers: Record<string, string> = { initialize: hello, 'tools/list': listed };
      const result = answers[method];
      const end = result === undefined ? '"error":{"code":-32601,"message":"no"}' : `"result":${result}`;
      const message = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${end}}`;
      if (!isStream) return new Response(message, json);
      return new Response(`data: ${message}\n\n`, { headers: { 'Content-Type': 'text/event-stream' } });
    });
    const name = isStream ? 'streamed' : 'plain';
    await ready({ kind: 'mcp_http', name, url: 'https://mcp.example.com/mcp' });
    expectDigits((await api('GET', `/v1/tools/${name}.row`, { token })).text);
    expectDigits((await api('GET', `/v1/tools?format=mcp&category=${name}`, { token })).text);
  });
});
