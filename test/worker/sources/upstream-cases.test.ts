/** Reported failures of gateways before MCP servers, by their ids: what a server offers and gets, whatever road a call takes. */
import { evictDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ToolSourceSchema } from '../../../shared/tool-source.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';
import { Internet, scriptedServer } from './stand-ins.ts';

let host: HostDouble;
let sessionId: string;
let token: string;
/** Calls as the server got them. */
const received: { name: string; arguments: unknown }[] = [];
const CallSchema = z.looseObject({ name: z.string(), arguments: z.unknown() });

beforeAll(async () => {
  host = await connectFakeHost();
  token = await tokenOf({ claims: { tenant: 'upstream', sub: 'alice', scope: ALL_SCOPES } });
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
beforeEach(() => {
  received.length = 0;
});
afterEach(() => vi.restoreAllMocks());
afterAll(() => host.close());

/** Makes a server with these tools a source, and waits until they are there. */
async function offered(source: string, tools: readonly object[]): Promise<void> {
  const internet = new Internet();
  internet.start();
  const listed = tools.map((tool) => ({ inputSchema: { type: 'object' }, ...tool }));
  internet.host(
    `${source}.example.com`,
    scriptedServer({
      'tools/list': () => ({ tools: listed }),
      'tools/call': (params) => {
        const { name, arguments: args } = CallSchema.parse(params);
        received.push({ name, arguments: args });
        return { content: [{ type: 'text', text: JSON.stringify(args) }] };
      },
    }),
  );
  const body = { kind: 'mcp_http', name: source, url: `https://${source}.example.com/mcp` };
  expect((await api('POST', '/v1/tool_sources', { token, body })).status).toBe(201);
  await eventually(async () => {
    const read = await api('GET', `/v1/tool_sources/${source}`, { token });
    expect(ToolSourceSchema.parse(read.json)).toMatchObject({ status: 'ready', tool_count: tools.length });
  });
}

const ExportedSchema = z.object({
  tools: z.array(
    z.object({
      function: z.object({
        name: z.string(),
        strict: z.boolean(),
        parameters: z.record(z.string(), z.unknown()),
      }),
    }),
  ),
  names: z.record(z.string(), z.string()),
});

async function exported(strict = false) {
  const answer = await api('GET', `/v1/tools?format=openai&strict=${strict}`, { token });
  return ExportedSchema.parse(answer.json);
}

const AnsweredSchema = z.object({ messages: z.array(z.object({ content: z.string() })) });

async function calledByModel(name: string, args: string): Promise<string> {
  const body = { role: 'assistant', tool_calls: [{ id: 'c', function: { name, arguments: args } }] };
  const answer = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token, body });
  return AnsweredSchema.parse(answer.json).messages[0]?.content ?? '';
}

test('R40: a strict declaration is within its rules, and the nulls that it brings do not reach the server', async () => {
  const inputSchema = {
    type: 'object',
    required: ['url'],
    properties: {
      url: { type: 'string', format: 'uri' },
      n: { type: 'integer', default: 5, minimum: 1 },
      o: { type: 'object', properties: { k: { type: 'string' } } },
    },
  };
  await offered('fetcher', [{ name: 'fetch', inputSchema }]);
  const { tools, names } = await exported(true);
  const declared = tools.find(
    ({ function: { name } }) => (names[name] ?? name) === 'fetcher.fetch',
  )?.function;
  expect(declared?.strict).toBe(true);
  const parameters = z
    .object({
      required: z.array(z.string()),
      additionalProperties: z.literal(false),
      properties: z.object({
        url: z.object({ type: z.literal('string') }),
        n: z.object({ type: z.tuple([z.literal('integer'), z.literal('null')]) }),
        o: z.looseObject({}),
      }),
    })
    .parse(declared?.parameters);
  expect(parameters.required.toSorted()).toEqual(['n', 'o', 'url']);
  const text = JSON.stringify(declared?.parameters);
  expect(text).not.toContain('"default"');
  expect(text.match(/"additionalProperties":false/g)).toHaveLength(2);
  await calledByModel(declared?.name ?? '', '{"url":"http://a.test/","n":null,"o":null}');
  expect(received).toEqual([{ name: 'fetch', arguments: { url: 'http://a.test/' } }]);
  const kept = await env.CATALOGUE.getByName('upstream').get('fetcher.fetch', null);
  expect(kept.ok ? kept.value.input_schema : kept.detail).toEqual(inputSchema);
});

test('R49: tools of any name go out under legal ones that stay, and are called under their own', async () => {
  const names = [
    'calendar.list/v2',
    'calendar_list_v2',
    'calendar-list.v2',
    'a'.repeat(70),
    `${'a'.repeat(69)}b`,
    '名前',
    'x y',
  ];
  await offered(
    'geo-srv',
    names.map((name) => ({ name })),
  );
  const first = await exported();
  await evictDurableObject(env.CATALOGUE.get(env.CATALOGUE.idFromName('upstream')));
  expect(await exported()).toEqual(first);
  const own = first.tools
    .map(({ function: { name } }) => name)
    .filter((name) => (first.names[name] ?? name).startsWith('geo-srv.'));
  expect(new Set(own).size).toBe(7);
  for (const name of own) {
    expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    await calledByModel(name, '{}');
  }
  expect(received.map(({ name }) => name).toSorted()).toEqual(names.toSorted());
  received.length = 0;
  const listed = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} }, { token });
  const overMcp = z
    .object({ tools: z.array(z.object({ name: z.string() })) })
    .parse(listed.messages[0]?.result);
  const shown = overMcp.tools.map(({ name }) => name).filter((name) => /^geo[-_]srv/.test(name));
  expect(new Set(shown).size).toBe(7);
  for (const name of shown) await rpc(call(1, name, { session_id: sessionId }), { token });
  expect(received.map(({ name }) => name).toSorted()).toEqual(names.toSorted());
});

test('R61: an integer that a double would round is refused before the server hears of it', async () => {
  const inputSchema = { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] };
  await offered('ids', [{ name: 'echo_id', inputSchema }]);
  for (const id of ['9007199254740993', '2512292042121000001']) {
    const refused = await api('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      headers: { 'Content-Type': 'application/json' },
      raw: `{"tool_name":"ids.echo_id","arguments":{"id":${id}}}`,
    });
    expect(problemIn(refused)).toMatchObject({ status: 400, code: 'invalid_request' });
    expect(refused.text).toContain('send larger ones as strings');
    const { tools, names } = await exported();
    const name =
      tools.find(({ function: one }) => (names[one.name] ?? one.name) === 'ids.echo_id')?.function.name ?? '';
    expect(await calledByModel(name, `{"id":${id}}`)).toContain('send larger ones as strings');
    const overMcp = await rpc(
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ids.echo_id","arguments":{"id":${id}}}}`,
      { token },
    );
    expect(overMcp.text).toContain('send larger ones as strings');
  }
  expect(received).toEqual([]);
  const safe = await api('POST', `/v1/sessions/${sessionId}/execute`, {
    token,
    body: { tool_name: 'ids.echo_id', arguments: { id: 9_007_199_254_740_991 } },
  });
  expect(ExecutionSchema.parse(safe.json).stdout).toBe('{"id":9007199254740991}');
});

describe('R67: a server’s schemas', () => {
  const items = [{ type: 'string' }, { type: 'integer' }];
  const seven = { items, additionalItems: false };
  const twenty = { prefixItems: items, items: false };
  const schemaOf = ($schema: string | undefined, tuple: object) => ({
    ...($schema === undefined ? {} : { $schema }),
    type: 'object',
    properties: { p: { type: 'array', ...tuple } },
    required: ['p'],
  });

  test('are each followed in their own dialect, and one that nobody knows is marked alone', async () => {
    await offered('dialects', [
      { name: 't7', inputSchema: schemaOf('http://json-schema.org/draft-07/schema#', seven) },
      { name: 't20', inputSchema: schemaOf('https://json-schema.org/draft/2020-12/schema', twenty) },
      { name: 't0', inputSchema: schemaOf(undefined, twenty) },
      { name: 'tx', inputSchema: schemaOf('https://json-schema.org/draft/2030-01/schema', twenty) },
    ]);
    for (const name of ['t7', 't20', 't0']) {
      const statuses = await Promise.all(
        [
          ['a', 1],
          [1, 'a'],
          ['a', 1, 2],
        ].map(async (p) => {
          const body = { tool_name: `dialects.${name}`, arguments: { p } };
          return (await api('POST', `/v1/sessions/${sessionId}/execute`, { token, body })).status;
        }),
      );
      expect([name, ...statuses]).toEqual([name, 200, 400, 400]);
    }
    const marked = await api('GET', '/v1/tools/dialects.tx', { token });
    expect(marked.json).toMatchObject({ status: 'broken', reason: expect.stringContaining('2030-01') });
  });
});
