import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { EDGE_RECEIPT_PAYLOAD_TYPE } from '../../../shared/edge-receipt.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import {
  MAX_TOOL_CHARACTERS_OF_A_TENANT,
  MAX_TOOL_CODE_CHARACTERS,
  RegisteredManySchema,
  RegisteredToolSchema,
  RegisterToolSchema,
} from '../../../shared/registered-tool.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

let host: HostDouble;
let sessionId: string;
/** Code that the host was given. */
const ran: string[] = [];
/** What the next cell has as its value. */
let value = '{"sum":3}';

const script: Script = async (execution) => {
  execution.started();
  ran.push(String(execution.arguments.code ?? execution.arguments.command));
  execution.part('value', value);
  return execution.finish();
};

const scopes = (scope = ALL_SCOPES, tenant = 'acme') => tokenOf({ claims: { tenant, sub: 'alice', scope } });

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await scopes(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
  value = '{"sum":3}';
  vi.restoreAllMocks();
});
afterAll(() => {
  host.close();
});

const ADD = {
  name: 'add numbers',
  description: 'Adds two numbers',
  category: 'math/sums',
  kind: 'code',
  language: 'python',
  code: 'def main(a, b):\n    return {"sum": a + b}\n',
  input_schema: {
    type: 'object',
    properties: { a: { type: 'integer' }, b: { type: 'integer' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  output_schema: { type: 'object', properties: { sum: { type: 'integer' } }, required: ['sum'] },
};

async function register(tool: object, options: ApiOptions = {}) {
  return api('POST', '/v1/tools', { token: await scopes(), body: tool, ...options });
}

async function registered(tool: object, options: ApiOptions = {}) {
  const answer = await register(tool, options);
  expect(answer.status, answer.text).toBeLessThan(300);
  return RegisteredToolSchema.parse(answer.json);
}

async function execute(tool_name: string, args: object, options: ApiOptions = {}) {
  const body = { tool_name, arguments: args };
  return api('POST', `/v1/sessions/${sessionId}/execute`, { token: await scopes(), body, ...options });
}

async function callTool(token: string, name: string, args: Record<string, unknown>) {
  const { messages } = await rpc(call(1, name, args), { token });
  return messages[0]?.result ?? {};
}

async function listed(token: string): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${cursor}`;
    const answer = await api('GET', `/v1/tools?limit=3${query}`, { token });
    const page: z.infer<typeof ToolListSchema> = ToolListSchema.parse(answer.json);
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.next_cursor;
  } while (cursor !== null && names.length < 100);
  return names;
}

async function found(q: string, token: string, more = ''): Promise<string[]> {
  const answer = await api('GET', `/v1/tools/search?q=${encodeURIComponent(q)}${more}`, { token });
  return ToolSearchSchema.parse(answer.json).tools.map(({ name }) => name);
}

describe('a registered function', () => {
  test('is listed, found and called by everyone whose token has its scope', async () => {
    const first = await register(ADD);
    expect(first.status).toBe(201);
    expect(first.headers.get('Location')).toBe('/v1/tools/add%20numbers');
    const token = await scopes('tools:python sessions:read');
    expect(await listed(token)).toEqual(['python', 'add numbers']);
    expect(await found('sum of two numbers', token)).toEqual(['add numbers']);
    const execution = ExecutionSchema.parse((await execute(ADD.name, { a: 1, b: 2 }, { token })).json);
    expect(execution).toMatchObject({
      tool_name: ADD.name,
      status: 'succeeded',
      value: null,
      structured: { sum: 3 },
    });
    expect(execution.receipt).not.toBeNull();
    expect(ran).toHaveLength(1);
    const kept = await api('GET', `/v1/sessions/${sessionId}/executions/${execution.execution_id}`, {
      token,
    });
    expect(ExecutionSchema.parse(kept.json)).toMatchObject({ tool_name: ADD.name, structured: { sum: 3 } });
  });

  test('runs only with arguments that fit, and says what does not', async () => {
    await registered(ADD);
    const problem = problemIn(await execute(ADD.name, { a: 'x', c: 1 }));
    expect(problem).toMatchObject({
      status: 400,
      code: 'invalid_request',
      violations: expect.arrayContaining([
        { path: 'body.arguments.a', expected: 'integer', received: '"x"' },
        { path: 'body.arguments.b', expected: 'a value', received: 'nothing' },
        { path: 'body.arguments.c', expected: 'nothing here', received: '1' },
      ]),
    });
    expect(ran).toEqual([]);
  });

  test('that gives something else than it promised has failed', async () => {
    await registered(ADD);
    value = '{"sum":"three"}';
    const execution = ExecutionSchema.parse((await execute(ADD.name, { a: 1, b: 2 })).json);
    expect(execution).toMatchObject({ status: 'failed', error: { name: 'OutputMismatch' } });
    expect(execution.error?.message).toContain('structured.sum: expected integer');
  });

  test('is called by a model under the name that it was given, or its own', async () => {
    await registered(ADD);
    const token = await scopes();
    const exported = await api('GET', '/v1/tools?format=openai', { token });
    const { names } = z.object({ names: z.record(z.string(), z.string()) }).parse(exported.json);
    const [exportedName] = Object.entries(names).find(([, name]) => name === ADD.name) ?? [];
    const tool_calls = [exportedName, ADD.name].map((name, index) => ({
      id: `c${index}`,
      type: 'function',
      function: { name, arguments: '{"a":1,"b":2}' },
    }));
    const body = { role: 'assistant', tool_calls };
    const answer = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token, body });
    expect(answer.json).toMatchObject({ messages: [{ content: '{"sum":3}' }, { content: '{"sum":3}' }] });
  });

  test('is listed, found and called over MCP, and gives what its schema says', async () => {
    await registered(ADD);
    const token = await scopes();
    const { messages } = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} }, { token });
    const [tool] = z
      .array(z.looseObject({ title: z.string(), name: z.string() }))
      .parse(messages[0]?.result?.tools)
      .filter(({ title }) => title === ADD.name);
    expect(tool).toMatchObject({ outputSchema: ADD.output_schema });
    const args = { a: 1, b: 2, session_id: sessionId };
    expect(await callTool(token, tool?.name ?? '', args)).toMatchObject({ structuredContent: { sum: 3 } });
    const search = await callTool(token, 'search_tools', { query: 'add numbers' });
    expect(search.structuredContent).toMatchObject({ tools: [{ name: ADD.name }] });
    const byName = { name: ADD.name, arguments: { a: 1, b: 2 }, session_id: sessionId };
    expect(await callTool(token, 'call_tool', byName)).toMatchObject({
      structuredContent: { structured: { sum: 3 }, tool_name: ADD.name },
    });
  });
});

test('R49: tools of any name are exported under legal ones that stay, and called by them', async () => {
  const token = await scopes(ALL_SCOPES, 'names');
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  const ownSession = SessionSchema.parse(created.json).session_id;
  const source = 'géo srv.v2';
  const originals = [
    'calendar.list/v2',
    'calendar_list_v2',
    'calendar-list.v2',
    'a'.repeat(70),
    `${'a'.repeat(69)}b`,
  ];
  const names = [...originals, '名前', 'x y'].map((name) => `${source}/${name}`);
  const tools = names.map((name) => ({ ...ADD, name, output_schema: undefined }));
  const many = RegisteredManySchema.parse((await api('POST', '/v1/tools', { token, body: { tools } })).json);
  expect(many.tools.map(({ status }) => status)).toEqual(names.map(() => 'created'));
  const exportOf = async () => (await api('GET', '/v1/tools?format=openai', { token })).json;
  const exported = z.object({ names: z.record(z.string(), z.string()) }).parse(await exportOf());
  expect(Object.values(exported.names).toSorted()).toEqual(names.toSorted());
  for (const name of Object.keys(exported.names)) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
  expect(await exportOf()).toMatchObject(exported);
  for (const [name, original] of Object.entries(exported.names)) {
    const body = { tool_calls: [{ id: 'c', function: { name, arguments: '{"a":1,"b":2}' } }] };
    const answer = await api('POST', `/v1/sessions/${ownSession}/tool_calls`, { token, body });
    const { calls } = z.object({ calls: z.array(z.object({ execution_id: z.string() })) }).parse(answer.json);
    const path = `/v1/sessions/${ownSession}/executions/${calls[0]?.execution_id}`;
    expect((await api('GET', path, { token })).json).toMatchObject({ tool_name: original });
  }
});

describe('a version', () => {
  const versioned = { ...ADD, name: 'versioned' };

  test('is added once, kept, and the last one is called', async () => {
    expect((await register(versioned)).status).toBe(201);
    expect((await register(versioned)).status).toBe(200);
    expect(problemIn(await register({ ...versioned, description: 'Another' }))).toMatchObject({
      status: 409,
      code: 'tool_exists',
    });
    expect((await register({ ...versioned, version: '2', description: 'Another' })).status).toBe(201);
    const token = await scopes();
    const current = RegisteredToolSchema.parse((await api('GET', '/v1/tools/versioned', { token })).json);
    expect(current).toMatchObject({ version: '2', versions: ['2', '1'], description: 'Another' });
    const former = await api('GET', '/v1/tools/versioned?version=1', { token });
    expect(former.json).toMatchObject({ version: '1', description: ADD.description });
  });

  test('is replaced, disabled, enabled and removed', async () => {
    const token = await scopes();
    const put = (body: object) => api('PUT', '/v1/tools/replaced', { token, body });
    const { name: _, ...rest } = ADD;
    expect((await put(rest)).status).toBe(201);
    expect((await put({ ...rest, disabled: true })).json).toMatchObject({ status: 'disabled' });
    expect(await listed(token)).not.toContain('replaced');
    expect(problemIn(await execute('replaced', { a: 1, b: 2 }))).toMatchObject({ code: 'tool_unavailable' });
    expect((await put(rest)).json).toMatchObject({ status: 'ready' });
    expect((await execute('replaced', { a: 1, b: 2 })).status).toBe(200);
    expect((await api('DELETE', '/v1/tools/replaced', { token })).status).toBe(204);
    expect((await api('DELETE', '/v1/tools/replaced', { token })).status).toBe(404);
    expect(problemIn(await execute('replaced', { a: 1, b: 2 }))).toMatchObject({ code: 'tool_not_found' });
  });
});

describe('what cannot be called', () => {
  test.each([
    ['a built-in name', { name: 'python' }, 'body.name'],
    ['a reserved name', { name: 'search' }, 'body.name'],
    [
      'an unknown dialect',
      { input_schema: { $schema: 'http://json-schema.org/draft-03/schema#' } },
      'body.input_schema.$schema',
    ],
    [
      'a schema that is none',
      { input_schema: { type: 'object', required: 'a' } },
      'body.input_schema.required',
    ],
    [
      'a pattern that is none',
      { input_schema: { properties: { a: { pattern: '(' } } } },
      'body.input_schema.properties.a.pattern',
    ],
    ['arguments that are no object', { input_schema: { type: 'array' } }, 'body.input_schema.type'],
    ['an output schema that is none', { output_schema: { type: 'x' } }, 'body.output_schema.type'],
    ['no description', { description: '' }, 'body.description'],
  ])('%s is refused with its place', async (_, change, path) => {
    const problem = problemIn(await register({ ...ADD, ...change }));
    expect(problem.status).toBe(400);
    expect(problem.violations?.map((violation) => violation.path)).toContain(path);
  });

  test('a tool whose name a built-in one has by now says so, and the built-in one is called', async () => {
    const refused = await register({ ...ADD, name: 'run' });
    expect(problemIn(refused).violations).toMatchObject([
      { path: 'body.name', expected: 'a name that no built-in tool has' },
    ]);
    const token = await scopes(ALL_SCOPES, 'longtime');
    await registered({ ...ADD, name: 'runs' }, { token });
    await runInDurableObject(env.CATALOGUE.get(env.CATALOGUE.idFromName('longtime')), (_, { storage }) => {
      storage.sql.exec(
        `UPDATE tool SET name = 'run', function_name = 'run', mcp_name = 'run', definition = json_set(definition, '$.name', 'run')`,
      );
    });
    const shown = await api('GET', '/v1/tools/run', { token });
    expect(RegisteredToolSchema.parse(shown.json)).toMatchObject({
      status: 'broken',
      reason: 'name: expected a name that no built-in tool has',
    });
    const list = await api('GET', '/v1/tools', { token });
    const runs = ToolListSchema.parse(list.json).tools.filter(({ name }) => name === 'run');
    expect(runs).toMatchObject([{ category: 'code', description: expect.stringContaining('file') }]);
    const found = await api('GET', '/v1/tools/search?q=run%20a%20file', { token });
    expect(ToolSearchSchema.parse(found.json).tools[0]).toMatchObject({ name: 'run', category: 'code' });
    expect((await api('DELETE', '/v1/tools/run', { token })).status).toBe(204);
    const after = await api('GET', '/v1/tools/search?q=run%20a%20file', { token });
    expect(ToolSearchSchema.parse(after.json).tools[0]?.name).toBe('run');
  });

  test('R67: one of many is marked alone, and its neighbours are there', async () => {
    const tools = [
      { ...ADD, name: 'good' },
      { ...ADD, name: 'odd', input_schema: { $schema: 'urn:odd' } },
      { name: 'no kind' },
      { ...ADD, name: 'also good' },
    ];
    const token = await scopes();
    const answer = RegisteredManySchema.parse(
      (await api('POST', '/v1/tools', { token, body: { tools } })).json,
    );
    expect(answer.tools.map(({ name, status }) => [name, status])).toEqual([
      ['good', 'created'],
      ['odd', 'broken'],
      ['no kind', 'refused'],
      ['also good', 'created'],
    ]);
    expect(answer.tools[1]?.reason).toContain('urn:odd');
    const names = await listed(token);
    expect(names).toEqual(expect.arrayContaining(['good', 'also good']));
    expect(names).not.toContain('odd');
    expect((await api('GET', '/v1/tools/odd', { token })).json).toMatchObject({ status: 'broken' });
    expect(problemIn(await execute('odd', {})).detail).toContain('urn:odd');
  });

  test('a tool that its caller executes is listed, and calls say so', async () => {
    await registered({
      name: 'ask_user',
      description: 'Asks the person in front of the screen',
      kind: 'client',
    });
    expect(await listed(await scopes('tools:client'))).toEqual(['ask_user']);
    expect(problemIn(await execute('ask_user', {}))).toMatchObject({ code: 'tool_unavailable' });
  });

  test('a tool that needs an approval does not run without one', async () => {
    await registered({ ...ADD, name: 'approved', approval: 'required' });
    const waiting = await execute('approved', { a: 1, b: 2 });
    expect(waiting.json).toMatchObject({ status: 'waiting', approval: { status: 'waiting' } });
    expect(ran).toEqual([]);
  });
});

describe('who may', () => {
  const guarded = { ...ADD, name: 'guarded', required_scopes: ['crm.read', 'tools:python'] };

  test('use a tool: by none of the roads without each of its scopes', async () => {
    await registered(guarded);
    const without = await scopes('tools:python sessions:read sessions:write');
    expect(await listed(without)).not.toContain('guarded');
    expect(await found('guarded add numbers', without)).not.toContain('guarded');
    const refused = problemIn(await execute('guarded', { a: 1, b: 2 }, { token: without }));
    const missing = problemIn(await execute('missing', { a: 1, b: 2 }, { token: without }));
    expect(refused).toMatchObject({ status: 404, code: 'tool_not_found' });
    expect(refused.detail.replace('guarded', 'missing')).toBe(missing.detail);
    const body = {
      role: 'assistant',
      tool_calls: [{ id: 'c', function: { name: 'guarded', arguments: '{}' } }],
    };
    const messages = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token: without, body });
    expect(messages.text).toContain('tool_not_found');
    expect(JSON.stringify(await callTool(without, 'call_tool', { name: 'guarded' }))).toContain(
      'tool_not_found',
    );
    const direct = await rpc(
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'guarded', arguments: {} } },
      { token: without },
    );
    expect(direct.messages[0]?.error?.code).toBe(-32_602);
    expect(ran).toEqual([]);
    const withThem = await scopes('tools:python crm.read');
    expect(await listed(withThem)).toContain('guarded');
    expect((await execute('guarded', { a: 1, b: 2 }, { token: withThem })).status).toBe(200);
  });

  test('use a tool of another tenant: nobody, and nobody sees it', async () => {
    await registered({ ...ADD, name: 'ours' });
    const other = await scopes(ALL_SCOPES, 'globex');
    expect(await listed(other)).not.toContain('ours');
    expect(await found('ours add numbers', other)).toEqual([]);
    expect((await api('GET', '/v1/tools/ours', { token: other })).status).toBe(404);
    expect((await api('DELETE', '/v1/tools/ours', { token: other })).status).toBe(404);
  });

  test('register: only who may do by themselves what the tool does', async () => {
    expect((await register(ADD, { token: await scopes('tools:python') })).status).toBe(403);
    const answer = await register(
      { ...ADD, name: 'mine' },
      { token: await scopes('tools:write tools:node') },
    );
    expect(problemIn(answer)).toMatchObject({ code: 'insufficient_scope' });
    expect(answer.headers.get('WWW-Authenticate')).toContain('tools:python');
  });
});

test('R14, R73: many tools are walked over MCP in pages, each once, whatever their size', async () => {
  const token = await scopes(ALL_SCOPES, 'many');
  const text = 'x'.repeat(8_000);
  const tools = Array.from({ length: 240 }, (_, n) => ({
    ...ADD,
    name: `many_${n}`,
    description: `${n} ${text}`,
  }));
  for (const from of [0, 120]) {
    const body = { tools: tools.slice(from, from + 120) };
    expect((await api('POST', '/v1/tools', { token, body })).status).toBe(200);
  }
  const names: string[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const params = cursor === undefined ? {} : { cursor };
    const answer = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list', params }, { token });
    expect(answer.text.length).toBeLessThan(1024 * 1024);
    const page = z
      .object({ tools: z.array(z.object({ name: z.string() })), nextCursor: z.string().optional() })
      .parse(answer.messages[0]?.result);
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.nextCursor;
    pages += 1;
  } while (cursor !== undefined && pages < 20);
  expect(pages).toBeGreaterThan(2);
  expect(names.filter((name) => name.startsWith('many_'))).toHaveLength(240);
  expect(names).toEqual([...new Set(names)].toSorted());
  expect(names).toContain('search_tools');
});

test('the definitions of a tenant are bounded together, and what takes no more room is still taken', async () => {
  const catalogue = env.CATALOGUE.getByName('large');
  const put = (name: string, description: string) => ({
    tool: RegisterToolSchema.parse({
      ...ADD,
      name,
      description,
      code: 'x'.repeat(MAX_TOOL_CODE_CHARACTERS),
    }),
    credentials: null,
    fault: null,
  });
  const count = Math.ceil(MAX_TOOL_CHARACTERS_OF_A_TENANT / MAX_TOOL_CODE_CHARACTERS);
  const states: string[] = [];
  for (let at = 0; at < count; at += 1) {
    const stored = await catalogue.putMany([put(`large ${at}`, 'Some words')]);
    if (stored.ok) states.push(...stored.value.map(({ status }) => status));
  }
  expect(new Set(states.slice(0, -2))).toEqual(new Set(['created']));
  expect(states.at(-1)).toBe('refused');
  const same = await catalogue.put({ ...put('large 0', 'Less'), mode: 'replace' });
  expect(same.ok).toBe(true);
  const other = await catalogue.put({ ...put('one more', 'Less'), mode: 'create' });
  expect(other).toMatchObject({ ok: false, code: 'quota_exceeded' });
});

describe('a search', () => {
  test('looks in one category only, and one that nobody has is empty', async () => {
    await registered({ ...ADD, name: 'in sums', category: 'math/sums' });
    await registered({ ...ADD, name: 'in texts', category: 'texts' });
    const token = await scopes();
    const inMath = await found('add numbers', token, '&category=math&top_k=50');
    expect(inMath).toContain('in sums');
    expect(inMath).not.toContain('in texts');
    expect(await found('add numbers', token, '&category=nowhere')).toEqual([]);
    expect(await found('xqzzvw', token)).toEqual([]);
    expect(await found('run python code', token)).toContain('python');
  });
});

describe('an HTTP tool', () => {
  const lookup = {
    name: 'lookup',
    description: 'Looks something up',
    kind: 'http',
    method: 'GET',
    url: 'https://api.example.com/v1/{kind}/items',
    credentials: { authorization: 'Bearer very-secret-value' },
    input_schema: { type: 'object', properties: { kind: { type: 'string' }, q: { type: 'string' } } },
  };

  /** Made when they are asked for: a response belongs to the request in which it was made. */
  function answering(...answers: (() => Response)[]) {
    const requests: Request[] = [];
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      requests.push(new Request(input, init));
      return answers.shift()?.() ?? new Response('unexpected', { status: 500 });
    });
    return requests;
  }

  test('is called with its credentials, which nobody sees again', async () => {
    const put = await registered(lookup);
    expect(JSON.stringify(put)).not.toContain('very-secret-value');
    expect(put).toMatchObject({ credential_names: ['authorization'] });
    const stored = await env.CATALOGUE.getByName('acme').find({
      keys: [{ name: 'lookup', kind: 'name' }],
      known: [],
      revision: null,
    });
    expect(JSON.stringify(stored)).not.toContain('very-secret-value');
    const requests = answering(() => Response.json({ found: ['x'], echo: 'Bearer very-secret-value' }));
    const execution = ExecutionSchema.parse((await execute('lookup', { kind: 'a/b', q: 'é' })).json);
    expect(execution).toMatchObject({
      tool_name: 'lookup',
      status: 'succeeded',
      structured: { found: ['x'], echo: '[credential]' },
      receipt: { payloadType: EDGE_RECEIPT_PAYLOAD_TYPE },
    });
    expect(requests[0]?.url).toBe('https://api.example.com/v1/a%2Fb/items?q=%C3%A9');
    expect(requests[0]?.headers.get('authorization')).toBe('Bearer very-secret-value');
    expect(ran).toEqual([]);
  });

  test('shows none of its credentials where an answer has them with escapes', async () => {
    const basic = { ...lookup, name: 'basic', credentials: { authorization: 'Basic dXNl/nNlY3JldA==' } };
    await registered(basic);
    const echo =
      '{"a": "Basic dXNl\\/nNlY3JldA==", "dXNl\\/nNlY3JldA\\u003d\\u003d": ["\\u0064XNl/nNlY3JldA=="]}';
    answering(() => new Response(echo, { headers: { 'content-type': 'application/json' } }));
    expect((await execute('basic', { kind: 'a' })).json).toMatchObject({
      structured: { a: '[credential]', '[credential]': ['[credential]'] },
    });
  });

  test('keeps its credentials when it is replaced without any', async () => {
    await api('PUT', '/v1/tools/lookup', {
      token: await scopes(),
      body: { ...lookup, credentials: undefined },
    });
    const requests = answering(() => new Response('plain'));
    expect((await execute('lookup', { kind: 'a' })).json).toMatchObject({
      stdout: 'plain',
      structured: null,
    });
    expect(requests[0]?.headers.get('authorization')).toBe('Bearer very-secret-value');
  });

  test('takes its credentials along to no other host when it is replaced', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    const moved = { ...lookup, url: 'https://other.example.org/{kind}', credentials: undefined };
    const put = (body: object) => scopes().then((token) => api('PUT', '/v1/tools/lookup', { token, body }));
    expect(problemIn(await put(moved))).toMatchObject({
      status: 400,
      violations: [{ path: 'body.credentials' }],
    });
    expect((await put({ ...moved, credentials: {} })).json).toMatchObject({ credential_names: [] });
  });

  test.each([
    ['an error status', () => new Response('no', { status: 404 }), 'HttpError'],
    ['a redirect to an address inside', () => Response.redirect('https://127.0.0.1/', 302), 'AddressRefused'],
    ['a redirect to http', () => Response.redirect('http://api.example.com/', 302), 'AddressRefused'],
    ['more than it may', () => new Response('x'.repeat(2_000_000)), 'AnswerTooLarge'],
  ])('that is answered with %s has failed', async (_, answer, name) => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    answering(answer);
    expect((await execute('lookup', { kind: 'a' })).json).toMatchObject({
      status: 'failed',
      error: { name },
    });
  });

  test('takes its credentials to no other host', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    const requests = answering(
      () => Response.redirect('https://other.example.org/x', 302),
      () => new Response('there'),
    );
    expect((await execute('lookup', { kind: 'a' })).json).toMatchObject({ stdout: 'there' });
    expect(requests[1]?.headers.has('authorization')).toBe(false);
  });

  test('keeps an integer beyond 2^53 as text rather than round it', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    const headers = { 'content-type': 'application/json' };
    answering(() => new Response('{"id":9007199254740993}', { headers }));
    expect((await execute('lookup', { kind: 'a' })).json).toMatchObject({
      stdout: '{"id":9007199254740993}',
      structured: null,
    });
  });

  test('with a key is called once, and can be read again', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    const requests = answering(() => Response.json({ n: 1 }));
    const options = { token: await scopes(), headers: { 'Idempotency-Key': 'lookup-once' } };
    const first = ExecutionSchema.parse((await execute('lookup', { kind: 'a' }, options)).json);
    const again = ExecutionSchema.parse((await execute('lookup', { kind: 'a' }, options)).json);
    expect(again).toEqual(first);
    expect(requests).toHaveLength(1);
    expect(problemIn(await execute('lookup', { kind: 'b' }, options))).toMatchObject({
      code: 'idempotency_conflict',
    });
    const path = `/v1/sessions/${sessionId}/executions/${first.execution_id}`;
    expect((await api('GET', path, { token: options.token })).json).toEqual(first);
    const stranger = await tokenOf({ claims: { tenant: 'acme', sub: 'mallory' } });
    expect((await api('GET', path, { token: stranger })).status).toBe(404);
  });

  test('in a session of somebody else is not made', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    const requests = answering();
    const stranger = await tokenOf({ claims: { tenant: 'acme', sub: 'mallory' } });
    expect((await execute('lookup', { kind: 'a' }, { token: stranger })).status).toBe(404);
    expect(requests).toEqual([]);
  });

  test('is called over MCP and by a model’s message', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    answering(
      () => Response.json({ n: 1 }),
      () => Response.json({ n: 2 }),
    );
    const token = await scopes();
    const result = await callTool(token, 'lookup', { kind: 'a', session_id: sessionId });
    expect(result).toMatchObject({ structuredContent: { structured: { n: 1 } } });
    const tool_calls = [{ id: 'c', function: { name: 'lookup', arguments: '{"kind":"a"}' } }];
    const answer = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token, body: { tool_calls } });
    expect(answer.json).toMatchObject({ messages: [{ content: '{"n":2}' }] });
  });

  test('has an answer without a session too', async () => {
    await api('PUT', '/v1/tools/lookup', { token: await scopes(), body: lookup });
    answering(() => Response.json({ ok: true }));
    const body = { tool_name: 'lookup', arguments: { kind: 'a' } };
    const answer = await api('POST', '/v1/execute', { token: await scopes(), body });
    expect(answer.json).toMatchObject({ status: 'succeeded', structured: { ok: true } });
  });
});
