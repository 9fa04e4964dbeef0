import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { RegisteredToolSchema } from '../../../shared/registered-tool.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { type ToolSource, ToolSourceListSchema, ToolSourceSchema } from '../../../shared/tool-source.ts';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { connectClient } from '../mcp/clients.ts';
import { call, rpc } from '../mcp/rpc.ts';
import {
  add,
  Internet,
  scriptedServer,
  sessionServer,
  statelessHandler,
  statelessServer,
} from './stand-ins.ts';

let host: HostDouble;
let sessionId: string;
let internet: Internet;

const scopes = (scope = ALL_SCOPES, tenant = 'acme') => tokenOf({ claims: { tenant, sub: 'alice', scope } });

beforeAll(async () => {
  host = await connectFakeHost();
  const created = await api('POST', '/v1/sessions', { token: await scopes(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
beforeEach(() => {
  internet = new Internet();
  internet.start();
});
afterEach(async () => {
  const { sources } = ToolSourceListSchema.parse(
    (await api('GET', '/v1/tool_sources', { token: await scopes() })).json,
  );
  for (const { name } of sources) {
    expect((await api('DELETE', `/v1/tool_sources/${name}`, { token: await scopes() })).status).toBe(204);
  }
  vi.restoreAllMocks();
});
afterAll(() => host.close());

async function create(body: object, options: ApiOptions = {}) {
  const source = { kind: 'mcp_http', ...body };
  return api('POST', '/v1/tool_sources', { token: await scopes(), body: source, ...options });
}

async function read(name: string): Promise<ToolSource> {
  const answer = await api('GET', `/v1/tool_sources/${name}`, { token: await scopes() });
  return ToolSourceSchema.parse(answer.json);
}

/** When it was asked for the first time. */
async function asked(name: string): Promise<ToolSource> {
  return eventually(async () => {
    const source = await read(name);
    expect(source.status).not.toBe('pending');
    return source;
  });
}

async function ready(body: { name: string; url: string } & Record<string, unknown>): Promise<ToolSource> {
  const created = await create(body);
  expect(created.status, created.text).toBe(201);
  const source = await asked(body.name);
  expect(source.last_error).toBeNull();
  return source;
}

async function refresh(name: string): Promise<ToolSource> {
  const answer = await api('POST', `/v1/tool_sources/${name}/refresh`, { token: await scopes() });
  expect(answer.status, answer.text).toBe(200);
  return ToolSourceSchema.parse(answer.json);
}

async function toolNames(token?: string): Promise<string[]> {
  const answer = await api('GET', '/v1/tools?limit=1000', { token: token ?? (await scopes()) });
  return ToolListSchema.parse(answer.json).tools.map(({ name }) => name);
}

async function execute(tool_name: string, args: object, more: object = {}) {
  const body = { tool_name, arguments: args, ...more };
  return api('POST', `/v1/sessions/${sessionId}/execute`, { token: await scopes(), body });
}

async function executed(tool_name: string, args: object, more: object = {}) {
  const answer = await execute(tool_name, args, more);
  expect(answer.status, answer.text).toBe(200);
  return ExecutionSchema.parse(answer.json);
}

describe('an MCP server over HTTP', () => {
  test('of the newer era gives its tools, and each is called as any other', async () => {
    internet.host('mcp.example.com', statelessServer(add));
    const source = await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    expect(source).toMatchObject({
      status: 'ready',
      tool_count: 1,
      broken_count: 0,
      problems: [],
      server: { name: 'stand-in', version: '3', protocol_version: '2026-07-28' },
    });
    const { tools } = ToolListSchema.parse((await api('GET', '/v1/tools', { token: await scopes() })).json);
    expect(tools.find(({ name }) => name === 'calc.add')).toMatchObject({
      description: 'Adds two numbers',
      category: 'calc',
      input_schema: { properties: { a: { type: 'number' } } },
      output_schema: { properties: { sum: { type: 'number' } } },
    });
    const execution = await executed('calc.add', { a: 2, b: 3 });
    expect(execution).toMatchObject({
      status: 'succeeded',
      structured: { sum: 5 },
      stdout: '',
      tool_name: 'calc.add',
    });
    const kept = await api('GET', `/v1/sessions/${sessionId}/executions/${execution.execution_id}`, {
      token: await scopes(),
    });
    expect(kept.json).toMatchObject({ status: 'succeeded', structured: { sum: 5 } });
    const wrong = await execute('calc.add', { a: 'two', b: 3 });
    expect(problemIn(wrong)).toMatchObject({ code: 'invalid_request' });
    expect(wrong.text).toContain('body.arguments.a');
  });

  test('of the older era is spoken to in its sessions, and a new one is made when it knows the old one no more', async () => {
    const server = sessionServer((older) => {
      older.setRequestHandler('tools/list', () => ({
        tools: [{ name: 'echo', inputSchema: { type: 'object', properties: { text: { type: 'string' } } } }],
      }));
      older.setRequestHandler('tools/call', ({ params }) => ({
        content: [{ type: 'text', text: String(params.arguments?.text) }],
      }));
    });
    internet.host('old.example.com', server.answer);
    const source = await ready({ name: 'old', url: 'https://old.example.com/mcp' });
    expect(source.server).toMatchObject({ name: 'older stand-in', protocol_version: '2025-11-25' });
    expect(await executed('old.echo', { text: 'one' })).toMatchObject({ status: 'succeeded', stdout: 'one' });
    expect(server.sessions()).toBe(1);
    server.forget();
    expect(await executed('old.echo', { text: 'two' })).toMatchObject({ status: 'succeeded', stdout: 'two' });
    expect(server.sessions()).toBe(1);
  });

  test('is found by search, called through MCP and from a model, and by nobody without its scope', async () => {
    internet.host('mcp.example.com', statelessServer(add));
    await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    const found = await api('GET', '/v1/tools/search?q=adds%20two%20numbers', { token: await scopes() });
    expect(ToolSearchSchema.parse(found.json).tools[0]?.name).toBe('calc.add');
    const over = await rpc(call(1, 'calc.add', { a: 1, b: 1, session_id: sessionId }), {
      token: await scopes(),
    });
    expect(over.messages[0]?.result).toMatchObject({ structuredContent: { sum: 2 } });
    const alone = await api('POST', '/v1/execute', {
      token: await scopes(),
      body: { tool_name: 'calc.add', arguments: { a: 4, b: 5 } },
    });
    expect(alone.json).toMatchObject({ structured: { sum: 9 } });
    const exported = z
      .object({ names: z.record(z.string(), z.string()) })
      .parse((await api('GET', '/v1/tools?format=openai', { token: await scopes() })).json).names;
    const [functionName] = Object.entries(exported).find(([, name]) => name === 'calc.add') ?? [];
    const fromModel = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, {
      token: await scopes(),
      body: {
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: functionName, arguments: '{"a":1,"b":2}' } },
        ],
      },
    });
    expect(fromModel.json).toMatchObject({ messages: [{ tool_call_id: 'c1', content: '{"sum":3}' }] });

    const without = await scopes('sessions:read sessions:write tools:shell');
    expect(await toolNames(without)).not.toContain('calc.add');
    const body = { tool_name: 'calc.add', arguments: { a: 1, b: 2 } };
    const refused = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: without, body });
    expect(problemIn(refused).code).toBe('tool_not_found');
    expect(await toolNames(await scopes(ALL_SCOPES, 'globex'))).not.toContain('calc.add');
  });

  test('R14: is read to the end of its pages, also behind a cursor that is empty', async () => {
    const pages: Record<string, { tools: unknown[]; nextCursor?: string }> = {
      first: { tools: [tool('a'), tool('b')], nextCursor: '' },
      '': { tools: [tool('c'), tool('d')], nextCursor: 'eyJv' },
      eyJv: { tools: [tool('e')] },
    };
    internet.host(
      'pages.example.com',
      scriptedServer({ 'tools/list': ({ cursor }) => pages[typeof cursor === 'string' ? cursor : 'first'] }),
    );
    const source = await ready({ name: 'pages', url: 'https://pages.example.com/mcp' });
    expect(source.tool_count).toBe(5);
    expect(await toolNames()).toEqual(expect.arrayContaining(['pages.a', 'pages.e']));
  });

  test('R14: whose list has no end or breaks off gives what was read, and says that it may not be all', async () => {
    const isStuck = scriptedServer({
      'tools/list': () => ({ tools: [tool('a'), tool('b')], nextCursor: '0' }),
    });
    let asks = 0;
    internet.host('stuck.example.com', (request) => {
      asks += 1;
      return isStuck(request);
    });
    let page = 0;
    internet.host(
      'round.example.com',
      scriptedServer({
        'tools/list': () => {
          page += 1;
          return { tools: [tool('a')], nextCursor: String(page) };
        },
      }),
    );
    internet.host(
      'torn.example.com',
      scriptedServer({
        'tools/list': ({ cursor }) =>
          cursor === undefined ? { tools: [tool('a')], nextCursor: '1' } : undefined,
      }),
    );
    for (const name of ['stuck', 'round', 'torn']) {
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    }
    const said = await Promise.all(['stuck', 'round', 'torn'].map(asked));
    expect(
      said.map(({ status, tool_count, last_error }) => [status, tool_count, last_error?.message]),
    ).toEqual([
      ['degraded', 2, 'cursor did not advance'],
      ['degraded', 1, 'cursor did not advance'],
      ['degraded', 1, 'the server answered with the error -32601: no such method'],
    ]);
    expect(asks).toBeLessThan(100);
    expect(page).toBeLessThan(100);
    const names = await toolNames();
    expect(names.filter((name) => name.includes('.'))).toEqual(['round.a', 'stuck.a', 'stuck.b', 'torn.a']);
    expect(await refresh('torn')).toMatchObject({ status: 'degraded', tool_count: 1 });
  });

  test('keeps the whole list that it gave when a later one breaks off', async () => {
    let isTorn = false;
    internet.host(
      'tearing.example.com',
      scriptedServer({
        'tools/list': ({ cursor }) => {
          if (cursor === undefined) return { tools: [tool('a')], nextCursor: '1' };
          return isTorn ? undefined : { tools: [tool('b')] };
        },
      }),
    );
    await ready({ name: 'tearing', url: 'https://tearing.example.com/mcp' });
    isTorn = true;
    expect(await refresh('tearing')).toMatchObject({ status: 'degraded', tool_count: 2 });
    isTorn = false;
    expect(await refresh('tearing')).toMatchObject({ status: 'ready', tool_count: 2, last_error: null });
  });

  test('R58: that cannot be reached or is of no version that is spoken here has failed, and says why', async () => {
    internet.host('past.example.com', scriptedServer({}, { protocolVersion: '1999-01-01' }));
    for (const name of ['past', 'nowhere']) {
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    }
    const said = await Promise.all(['past', 'nowhere'].map(asked));
    expect(said.map(({ status }) => status)).toEqual(['failed', 'failed']);
    expect(said.map(({ last_error }) => last_error?.message)).toEqual([
      'unsupported protocol version',
      'the server cannot be reached, or its answer cannot be read',
    ]);
    expect(said.every(({ next_poll_at }) => next_poll_at !== null)).toBe(true);
    expect((await toolNames()).filter((name) => name.includes('.'))).toEqual([]);
  });

  test('keeps its tools when it fails later, and its tools follow what it lists', async () => {
    let listed: unknown[] | undefined = [tool('a'), tool('b')];
    internet.host(
      'moody.example.com',
      scriptedServer({ 'tools/list': () => (listed === undefined ? undefined : { tools: listed }) }),
    );
    await ready({ name: 'moody', url: 'https://moody.example.com/mcp' });
    listed = undefined;
    expect(await refresh('moody')).toMatchObject({ status: 'failed', tool_count: 2 });
    expect(await toolNames()).toEqual(expect.arrayContaining(['moody.a', 'moody.b']));
    listed = [tool('b'), tool('c')];
    expect(await refresh('moody')).toMatchObject({ status: 'ready', tool_count: 2, last_error: null });
    const names = await toolNames();
    expect(names).toEqual(expect.arrayContaining(['moody.b', 'moody.c']));
    expect(names).not.toContain('moody.a');
  });

  test('costs nobody anything by a bad tool: it is broken with its reason, or named where it is none', async () => {
    internet.host(
      'mixed.example.com',
      scriptedServer({
        'tools/list': () => ({
          tools: [
            tool('good'),
            { name: 'no schema' },
            { ...tool('odd'), inputSchema: { $schema: 'https://json-schema.org/draft/2019-09/schema' } },
            { ...tool('huge'), inputSchema: { type: 'object', description: 'x'.repeat(70_000) } },
            { description: 'has no name' },
            tool('good'),
            'text',
          ],
        }),
      }),
    );
    const source = await ready({ name: 'mixed', url: 'https://mixed.example.com/mcp' });
    expect(source).toMatchObject({ tool_count: 4, broken_count: 3 });
    expect(source.problems).toEqual([
      { name: null, reason: 'it is not a tool with a name' },
      { name: 'good', reason: 'it is listed twice' },
      { name: null, reason: 'it is not a tool with a name' },
    ]);
    expect((await toolNames()).filter((name) => name.startsWith('mixed.'))).toEqual(['mixed.good']);
    const odd = await api('GET', '/v1/tools/mixed.odd', { token: await scopes() });
    expect(RegisteredToolSchema.parse(odd.json)).toMatchObject({
      status: 'broken',
      source: 'mixed',
      reason: expect.stringContaining('2019-09'),
    });
    expect(problemIn(await execute('mixed.odd', {})).code).toBe('tool_unavailable');
  });

  test('R73: that is slow or enormous holds up nobody else', async () => {
    const large = Array.from({ length: 2_000 }, (_, n) => ({
      ...tool(`t${n}`),
      description: 'x'.repeat(1_024),
    }));
    internet.host('silent.example.com', () => new Promise<Response>(() => undefined));
    internet.host('large.example.com', scriptedServer({ 'tools/list': () => ({ tools: large }) }));
    internet.host('quick.example.com', scriptedServer({ 'tools/list': () => ({ tools: [tool('a')] }) }));
    for (const name of ['silent', 'large', 'quick']) {
      expect((await create({ name, url: `https://${name}.example.com/mcp` })).status).toBe(201);
    }
    expect(await asked('quick')).toMatchObject({ status: 'ready' });
    expect(await asked('large')).toMatchObject({ status: 'ready', tool_count: 2_000 });
    expect((await read('silent')).status).toBe('pending');
    const names = new Set<string>();
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page = await api('GET', `/v1/tools?limit=1000${query}`, { token: await scopes() });
      expect(page.text.length).toBeLessThan(1024 * 1024);
      const parsed = ToolListSchema.parse(page.json);
      for (const { name } of parsed.tools) names.add(name);
      cursor = parsed.next_cursor;
    } while (cursor !== null);
    expect([...names].filter((name) => name.startsWith('large.'))).toHaveLength(2_000);
    expect(names).toContain('quick.a');
  });

  test('is given up at the deadline of a call, and is told so', async () => {
    let given: AbortSignal | undefined;
    internet.host(
      'slow.example.com',
      statelessServer((server) => {
        server.registerTool('wait', { inputSchema: z.object({}) }, (_, { mcpReq }) => {
          given = mcpReq.signal;
          return new Promise(() => undefined);
        });
      }),
    );
    await ready({ name: 'slow', url: 'https://slow.example.com/mcp' });
    expect(await executed('slow.wait', {}, { timeout_ms: 300 })).toMatchObject({ status: 'timeout' });
    await eventually(() => expect(given?.aborted).toBe(true));
  });

  test('R32: is told when a call is given up by who made it', async () => {
    const given: AbortSignal[] = [];
    internet.host(
      'slow.example.com',
      statelessServer((server) => {
        server.registerTool('wait', { inputSchema: z.object({}) }, (_, { mcpReq }) => {
          given.push(mcpReq.signal);
          return new Promise(() => undefined);
        });
      }),
    );
    await ready({ name: 'slow', url: 'https://slow.example.com/mcp' });
    const client = await connectClient('2026-07-28', await scopes());
    for (const args of [{}, { session_id: sessionId }]) {
      const abort = new AbortController();
      const running = client.callTool({ name: 'slow.wait', arguments: args }, { signal: abort.signal });
      running.catch(() => undefined);
      const before = given.length;
      await eventually(() => expect(given.length).toBeGreaterThan(before));
      abort.abort();
      await eventually(() => expect(given.every(({ aborted }) => aborted)).toBe(true));
    }
    await client.close();
  });

  test('says when its list changed, in either era', async () => {
    // By a call: what it tells then belongs to the object that made it, as over a network.
    const names = { newer: ['grow'], older: ['grow'] };
    const server = statelessHandler((newer) => {
      for (const name of names.newer) {
        newer.registerTool(name, { inputSchema: z.object({}) }, () => {
          names.newer = ['grow', 'b'];
          server.toolsChanged();
          return { content: [] };
        });
      }
    });
    internet.host('new.example.com', server.answer);
    const sessions = sessionServer((older) => {
      older.setRequestHandler('tools/list', () => ({
        tools: names.older.map((name) => ({ name, inputSchema: { type: 'object' } })),
      }));
      older.setRequestHandler('tools/call', async () => {
        names.older = ['grow', 'b'];
        await older.sendToolListChanged();
        return { content: [] };
      });
    });
    internet.host('old.example.com', sessions.answer);
    for (const name of ['new', 'old']) {
      await ready({ name, url: `https://${name}.example.com/mcp` });
      await eventually(async () => {
        // Not before it listens: then nobody hears it.
        expect(await executed(`${name}.grow`, {})).toMatchObject({ status: 'succeeded' });
        expect(await toolNames()).toContain(`${name}.b`);
      }, 500);
    }
  });

  test('may fail a call, and gives what it says', async () => {
    internet.host(
      'rich.example.com',
      scriptedServer({
        'tools/list': () => ({ tools: ['fails', 'rich', 'breaks', 'odd'].map((name) => tool(name)) }),
        'tools/call': ({ name }) =>
          ({
            fails: { isError: true, content: [{ type: 'text', text: 'no such city' }] },
            rich: {
              content: [
                { type: 'text', text: 'a picture' },
                { type: 'image', mimeType: 'image/png', data: 'AAAA' },
                { type: 'resource', resource: { uri: 'file:///x', text: 'a text' } },
                { type: 'resource_link', uri: 'file:///y', name: 'y' },
              ],
            },
            odd: { content: [{ type: 'hologram' }] },
          })[String(name)],
      }),
    );
    await ready({ name: 'rich', url: 'https://rich.example.com/mcp' });
    expect(await executed('rich.fails', {})).toMatchObject({
      status: 'failed',
      stdout: 'no such city',
      error: { name: 'ToolError', message: 'no such city' },
    });
    expect(await executed('rich.rich', {})).toMatchObject({
      status: 'succeeded',
      stdout: 'a picture\na text\ny: file:///y',
      results: [{ mime: 'image/png', data: 'AAAA' }],
    });
    expect(await executed('rich.breaks', {})).toMatchObject({
      status: 'failed',
      error: { name: 'ServerError' },
    });
    expect(await executed('rich.odd', {})).toMatchObject({
      status: 'failed',
      error: { name: 'ServerError' },
    });
  });

  test('R61: that gives an integer which a double would round has failed, and its text is as it wrote it', async () => {
    const text = '{"id":9007199254740993}';
    const message = (id: unknown, data: string) =>
      `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[{"type":"text","text":${JSON.stringify(text)}}],"structuredContent":{"rows":[${data}]}}}`;
    let isStream = false;
    const scripted = scriptedServer({ 'tools/list': () => ({ tools: [tool('ids')] }) });
    const CallSchema = z.object({
      id: z.unknown(),
      params: z.object({ arguments: z.object({ data: z.string() }) }),
    });
    internet.host('ids.example.com', async (request) => {
      const asked = CallSchema.safeParse(
        await request
          .clone()
          .json()
          .catch(() => null),
      );
      if (!asked.success) return scripted(request);
      const whole = message(asked.data.id, asked.data.params.arguments.data);
      const [type, body] = isStream
        ? ['text/event-stream', `event: message\ndata: ${whole}\n\n`]
        : ['application/json', whole];
      return new Response(body, { headers: { 'content-type': type } });
    });
    await ready({ name: 'ids', url: 'https://ids.example.com/mcp' });
    for (isStream of [false, true]) {
      for (const [data, place] of [
        ['{"id":1},{"id":9007199254740993}', 'structuredContent.rows.1.id'],
        ['1e999', 'structuredContent.rows.0'],
      ]) {
        expect(await executed('ids.ids', { data })).toMatchObject({
          status: 'failed',
          stdout: text,
          structured: null,
          error: { name: 'InexactNumber', message: expect.stringContaining(`${place}: expected numbers`) },
        });
      }
      const exact = '9007199254740991,"9007199254740993",0.1234567890123456789,1.5e300';
      expect(await executed('ids.ids', { data: exact })).toMatchObject({
        status: 'succeeded',
        structured: { rows: [9_007_199_254_740_991, '9007199254740993', 0.123_456_789_012_345_68, 1.5e300] },
      });
    }
  });

  test('is shown its credentials, and nobody else is', async () => {
    internet.host('mcp.example.com', statelessServer(add));
    const created = await create({
      name: 'calc',
      url: 'https://mcp.example.com/mcp',
      headers: { 'x-team': 'blue' },
      credentials: { authorization: 'Bearer very-secret' },
    });
    expect(created.text).not.toContain('very-secret');
    expect((await asked('calc')).credential_names).toEqual(['authorization']);
    const [first] = internet.to('mcp.example.com');
    expect(first?.headers.get('authorization')).toBe('Bearer very-secret');
    expect(first?.headers.get('x-team')).toBe('blue');
    const moved = await api('PUT', '/v1/tool_sources/calc', {
      token: await scopes(),
      body: { kind: 'mcp_http', url: 'https://other.example.com/mcp' },
    });
    expect(problemIn(moved).violations?.[0]?.path).toBe('body.credentials');
    const stayed = await api('PUT', '/v1/tool_sources/calc', {
      token: await scopes(),
      body: { kind: 'mcp_http', url: 'https://mcp.example.com/other' },
    });
    expect(stayed.json).toMatchObject({ credential_names: ['authorization'], headers: {} });
    await eventually(() =>
      expect(internet.to('mcp.example.com').some(({ url }) => url.endsWith('/other'))).toBe(true),
    );
    expect(internet.to('mcp.example.com').at(-1)?.headers.get('authorization')).toBe('Bearer very-secret');
  });

  test('with OAuth gets tokens by client credentials, and a new one when it takes the old one no more', async () => {
    let valid = 'token-1';
    let given = 0;
    const server = statelessServer(add);
    internet.host('mcp.example.com', (request) =>
      request.headers.get('authorization') === `Bearer ${valid}`
        ? server(request)
        : new Response(null, { status: 401, headers: { 'www-authenticate': 'Bearer' } }),
    );
    internet.host('auth.example.com', async (request) => {
      given += 1;
      const form = new URLSearchParams(await request.text());
      expect(Object.fromEntries(form)).toEqual({
        grant_type: 'client_credentials',
        resource: 'https://mcp.example.com/mcp',
        scope: 'tools',
      });
      expect(request.headers.get('authorization')).toBe(`Basic ${btoa('gate:s3cret%2F')}`);
      return Response.json({ access_token: valid, token_type: 'Bearer', expires_in: 3_600 });
    });
    const oauth = {
      token_url: 'https://auth.example.com/token',
      client_id: 'gate',
      client_secret: 's3cret/',
      scope: 'tools',
    };
    const source = await ready({ name: 'calc', url: 'https://mcp.example.com/mcp', oauth });
    expect(JSON.stringify(source)).not.toContain('s3cret');
    expect(given).toBe(1);
    valid = 'token-2';
    expect(await executed('calc.add', { a: 1, b: 2 })).toMatchObject({ structured: { sum: 3 } });
    expect(given).toBe(2);
  });

  test('is never sought inside', async () => {
    for (const url of [
      'http://mcp.example.com/',
      'https://127.0.0.1/',
      'https://db.internal/',
      'https://a.example.com:8443/',
    ]) {
      expect(problemIn(await create({ name: 'inner', url })).violations?.[0]?.path, url).toBe('body.url');
    }
    const oauth = { token_url: 'https://localhost/token', client_id: 'x' };
    const inner = await create({ name: 'inner', url: 'https://mcp.example.com/', oauth });
    expect(problemIn(inner).violations?.[0]?.path).toBe('body.oauth.token_url');
    internet.host('lead.example.com', () => Response.redirect('https://169.254.169.254/latest', 307));
    expect((await create({ name: 'lead', url: 'https://lead.example.com/mcp' })).status).toBe(201);
    expect((await asked('lead')).status).toBe('failed');
    expect(internet.requests.every(({ url }) => new URL(url).host === 'lead.example.com')).toBe(true);
  });

  test('has rules for all its tools and for single ones', async () => {
    internet.host(
      'ruled.example.com',
      scriptedServer({ 'tools/list': () => ({ tools: ['a', 'b', 'c'].map((name) => tool(name)) }) }),
    );
    await ready({
      name: 'ruled',
      url: 'https://ruled.example.com/mcp',
      category: 'work/mail',
      required_scopes: ['tools:mcp', 'mail'],
      tools: {
        b: { disabled: true },
        c: { approval: 'required', required_scopes: ['tools:mcp'], category: 'danger' },
      },
    });
    const names = async (scope: string) =>
      (await toolNames(await scopes(scope))).filter((name) => name.includes('.'));
    expect(await names(`${ALL_SCOPES} mail`)).toEqual(['ruled.a', 'ruled.c']);
    expect(await names(ALL_SCOPES)).toEqual(['ruled.c']);
    const shown = async (name: string) =>
      (await api('GET', `/v1/tools/${name}`, { token: await scopes() })).json;
    expect(await shown('ruled.a')).toMatchObject({ category: 'work/mail', approval: 'none' });
    expect(await shown('ruled.b')).toMatchObject({ status: 'disabled' });
    expect(await shown('ruled.c')).toMatchObject({ category: 'danger', approval: 'required' });
  });

  test('owns the names of its tools while it is there', async () => {
    internet.host('mcp.example.com', statelessServer(add));
    const own = { name: 'calc.mine', description: 'mine', kind: 'client' };
    expect((await api('POST', '/v1/tools', { token: await scopes(), body: own })).status).toBe(201);
    await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    const token = await scopes();
    const body = { description: 'another', kind: 'client' };
    expect(problemIn(await api('PUT', '/v1/tools/calc.add', { token, body })).code).toBe('source_owned');
    expect(problemIn(await api('DELETE', '/v1/tools/calc.add', { token })).code).toBe('source_owned');
    expect(problemIn(await create({ name: 'calc', url: 'https://mcp.example.com/mcp' })).code).toBe(
      'source_exists',
    );
    expect((await api('DELETE', '/v1/tool_sources/calc', { token })).status).toBe(204);
    expect((await toolNames()).filter((name) => name.startsWith('calc.'))).toEqual(['calc.mine']);
    expect((await api('GET', '/v1/tool_sources/calc', { token })).status).toBe(404);
    expect((await api('DELETE', '/v1/tools/calc.mine', { token })).status).toBe(204);
  });

  test('that is disabled is not asked, and its tools are not called', async () => {
    internet.host('mcp.example.com', statelessServer(add));
    await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    const disabled = { kind: 'mcp_http', url: 'https://mcp.example.com/mcp', disabled: true };
    const put = await api('PUT', '/v1/tool_sources/calc', { token: await scopes(), body: disabled });
    expect(put.json).toMatchObject({ status: 'disabled' });
    const before = internet.requests.length;
    expect(await refresh('calc')).toMatchObject({ status: 'disabled', next_poll_at: null });
    expect(await executed('calc.add', { a: 1, b: 1 })).toMatchObject({
      status: 'failed',
      error: { name: 'SourceUnavailable', message: 'the source is disabled' },
    });
    expect(internet.requests.length).toBe(before);
  });
});

function tool(name: string) {
  return { name, inputSchema: { type: 'object' } };
}
