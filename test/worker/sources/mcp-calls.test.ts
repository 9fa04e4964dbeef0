/** How calls to a server end. */
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { eventually } from '../harness/eventually.ts';
import { connectClient } from '../mcp/clients.ts';
import { ready, scopes, tool, useHttpSources } from './http-sources.ts';
import { scriptedServer, sessionServer, statelessServer } from './stand-ins.ts';

const sources = useHttpSources();
const { executed, internet } = sources;
const SaidSchema = z.looseObject({
  id: z.unknown().optional(),
  method: z.string().optional(),
  params: z.looseObject({ requestId: z.unknown().optional() }).optional(),
});

describe('an MCP server over HTTP', () => {
  test('is given up at the deadline of a call, and is told so', async () => {
    let given: AbortSignal | undefined;
    internet().host(
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
    internet().host(
      'slow.example.com',
      statelessServer((server) => {
        server.registerTool('wait', { inputSchema: z.object({}) }, (_, { mcpReq }) => {
          given.push(mcpReq.signal);
          return new Promise(() => undefined);
        });
      }),
    );
    const older = sessionServer((server) => {
      server.setRequestHandler('tools/list', () => ({
        tools: [{ name: 'wait', inputSchema: { type: 'object' } }],
      }));
      server.setRequestHandler('tools/call', (_, { mcpReq }) => {
        given.push(mcpReq.signal);
        return new Promise(() => undefined);
      });
    });
    const said: z.infer<typeof SaidSchema>[] = [];
    internet().host('old.example.com', async (request) => {
      if (request.method === 'POST') said.push(SaidSchema.parse(await request.clone().json()));
      return older.answer(request);
    });
    await ready({ name: 'slow', url: 'https://slow.example.com/mcp' });
    await ready({ name: 'old', url: 'https://old.example.com/mcp' });
    const client = await connectClient('2026-07-28', await scopes());
    for (const name of ['slow.wait', 'old.wait']) {
      for (const args of [{}, { session_id: sources.sessionId() }]) {
        const abort = new AbortController();
        const before = given.length;
        const running = client.callTool({ name, arguments: args }, { signal: abort.signal });
        running.catch(() => undefined);
        await eventually(() => expect(given.length).toBeGreaterThan(before));
        abort.abort();
        await eventually(() => expect(given.every(({ aborted }) => aborted)).toBe(true));
      }
    }
    await client.close();
    const ids = said.filter(({ method }) => method === 'tools/call').map(({ id }) => id);
    const cancelled = said.filter(({ method }) => method === 'notifications/cancelled');
    expect(cancelled.map(({ params }) => params?.requestId)).toEqual(ids);
    expect(ids).toHaveLength(2);
  });

  test('may fail a call, and gives what it says', async () => {
    internet().host(
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
    internet().host('ids.example.com', async (request) => {
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

  test.each(['elicitation/create', 'sampling/createMessage', 'roots/list'])(
    'that asks its client back (%s) is refused, and its call goes on',
    async (method) => {
      const RequestSchema = z.object({ id: z.unknown().optional(), method: z.string() });
      const scripted = scriptedServer({ 'tools/list': () => ({ tools: [tool('asks')] }) });
      const answers: unknown[] = [];
      internet().host('asks.example.com', async (request) => {
        if (request.method !== 'POST') return scripted(request);
        const body: unknown = await request.clone().json();
        const asked = RequestSchema.safeParse(body);
        if (!asked.success) {
          answers.push(body);
          return new Response(null, { status: 202 });
        }
        if (asked.data.method !== 'tools/call') return scripted(request);
        const messages = [
          {
            jsonrpc: '2.0',
            id: 'ask-1',
            method,
            params: { message: 'Who?', requestedSchema: {}, messages: [] },
          },
          { jsonrpc: '2.0', id: asked.data.id, result: { content: [{ type: 'text', text: 'without' }] } },
        ];
        const events = messages.map((message) => `data: ${JSON.stringify(message)}\n\n`).join('');
        return new Response(events, { headers: { 'content-type': 'text/event-stream' } });
      });
      await ready({ name: 'asks', url: 'https://asks.example.com/mcp' });
      expect(await executed('asks.asks', {})).toMatchObject({ status: 'succeeded', stdout: 'without' });
      await eventually(() => expect(answers).toMatchObject([{ id: 'ask-1', error: { code: -32_601 } }]));
    },
  );
});
