/** A tool policy by every road: what it leaves out is neither found nor called, and arguments are what it says. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { WorkflowSchema } from '../../../shared/workflow.ts';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

let host: HostDouble;
let sessionId: string;
const running: ExecutionDouble[] = [];
const TIMEOUT_MS = 60_000;

const CONVERT = {
  name: 'convert',
  description: 'Converts a document',
  category: 'documents/office',
  kind: 'code',
  language: 'python',
  code: 'def main(source):\n    return source',
  input_schema: { type: 'object', properties: { source: { type: 'string' } } },
};
const FETCH = {
  name: 'fetch_page',
  description: 'Fetches a page',
  category: 'web',
  kind: 'http',
  method: 'GET',
  url: 'https://fetcher.example.com/',
  input_schema: { type: 'object', properties: { target: { type: 'string' } }, required: ['target'] },
};
const ASK = {
  name: 'ask',
  description: 'Asks a person',
  category: 'people',
  kind: 'client',
  input_schema: { type: 'object', properties: { to: { type: 'string' } } },
};
const APPROVED = { ...CONVERT, name: 'approved_convert', approval: 'required' };

const withPolicy = (policy?: object, tenant = 'acme') =>
  tokenOf({ claims: { tenant, ...(policy === undefined ? {} : { tool_policy: policy }) } });

beforeAll(async () => {
  host = await connectFakeHost({
    script: async (execution) => {
      execution.started();
      running.push(execution);
      if (execution.arguments.program !== undefined) return;
      execution.part('value', '"done"');
      await execution.finish();
    },
  });
  const token = await withPolicy();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  for (const tool of [CONVERT, FETCH, ASK, APPROVED]) {
    expect((await api('POST', '/v1/tools', { token, body: tool })).status).toBe(201);
  }
});
beforeEach(() => {
  running.length = 0;
  vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ page: 1 }));
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  vi.restoreAllMocks();
});
afterAll(() => host.close());

const inSession = (rest: string) => `/v1/sessions/${sessionId}${rest}`;
const codeOf = (answer: ApiAnswer) => (answer.status < 400 ? 'ran' : problemIn(answer).code);
const said = (text: string) =>
  /policy_refused|tool_not_found|no tool|requires an approval|approval_required/.exec(text)?.[0] ?? 'ran';

interface Called {
  name: string;
  arguments: Record<string, unknown>;
}

/** What a call by each road comes to, where it is one that any tool may be called by. */
async function byEveryRoad(token: string, called: Called): Promise<Record<string, string>> {
  const { name, arguments: args } = called;
  const post = async (path: string, body: object) => api('POST', path, { token, body });
  const text = JSON.stringify(args);
  const openai = { role: 'assistant', tool_calls: [{ id: 'c', function: { name, arguments: text } }] };
  const anthropic = { role: 'assistant', content: [{ type: 'tool_use', id: 't', name, input: args }] };
  const session_id = sessionId;
  const xagent = await request('POST', '/xagent/execute_tool', {
    token,
    headers: { 'Node-Id': sessionId },
    body: { tool_name: name, arguments: args },
  });
  const enclave = await request('POST', '/ms-enclave/sandbox/tool/execute', {
    token,
    body: { sandbox_id: sessionId, tool_name: name, parameters: args },
  });
  const workflow = await post('/v1/workflows', { tasks: { one: { tool_name: name, arguments: args } } });
  return {
    execute: codeOf(await post(inSession('/execute'), { tool_name: name, arguments: args })),
    executeOnce: codeOf(await post('/v1/execute', { tool_name: name, arguments: args })),
    openai: said((await post(inSession('/tool_calls'), openai)).text),
    anthropic: said((await post(inSession('/tool_calls'), anthropic)).text),
    mcp: said((await rpc(call(1, name, { session_id, ...args }), { token })).text),
    mcpByName: said((await rpc(call(2, 'call_tool', { name, arguments: args, session_id }), { token })).text),
    xagent: said(await xagent.text()),
    enclave: said(await enclave.text()),
    workflow: codeOf(workflow),
  };
}

const everywhere = (outcome: string) => ({
  execute: outcome,
  executeOnce: outcome,
  openai: outcome,
  anthropic: outcome,
  mcp: outcome,
  mcpByName: outcome,
  xagent: outcome,
  enclave: outcome,
  workflow: outcome,
});

const NEAR = {
  arguments: [
    { tool: 'convert', argument: '/source', path_prefixes: ['/workspace/in'] },
    { tool: 'approved_convert', argument: '/source', path_prefixes: ['/workspace/in'] },
    { category: 'web', argument: '/target', hosts: ['*.example.org'] },
    { category: 'people', argument: '/to', one_of: ['bob'] },
    { tool: 'file', argument: '/path', path_prefixes: ['/workspace/in'] },
  ],
};

describe('arguments', () => {
  test.each([
    ['a registered function', 'convert', { source: '/workspace/in/../x' }, { source: '/workspace/in/x' }],
    ['an HTTP tool', 'fetch_page', { target: 'https://evil.test/' }, { target: 'https://a.example.org/' }],
  ])(
    'of %s are held by every road',
    async (_what, name, outside, inside) => {
      const token = await withPolicy(NEAR);
      expect(await byEveryRoad(token, { name, arguments: outside })).toEqual(everywhere('policy_refused'));
      expect(running).toEqual([]);
      expect(globalThis.fetch).not.toHaveBeenCalled();
      expect(await byEveryRoad(token, { name, arguments: inside })).toEqual(everywhere('ran'));
      const free = await withPolicy();
      expect(await byEveryRoad(free, { name, arguments: outside })).toEqual(everywhere('ran'));
    },
    TIMEOUT_MS,
  );

  test(
    'of the file tool are held by every road, and the grant says it',
    async () => {
      const token = await withPolicy(NEAR);
      const read = (path: string) => ({ name: 'file', arguments: { operation: 'read', path } });
      const enclave = { enclave: expect.any(String) };
      expect(await byEveryRoad(token, read('out/a'))).toEqual({
        ...everywhere('policy_refused'),
        ...enclave,
      });
      expect(running).toEqual([]);
      expect(await byEveryRoad(token, read('in/a'))).toEqual({ ...everywhere('ran'), ...enclave });
      const [constraint] = running[0]?.claims.constraints ?? [];
      expect(constraint).toEqual({ argument: '/path', required: true, path_prefixes: ['/workspace/in'] });
    },
    TIMEOUT_MS,
  );

  test('are refused with the path of the argument and what was expected', async () => {
    const token = await withPolicy(NEAR);
    const body = { tool_name: 'convert', arguments: {} };
    const answer = await api('POST', inSession('/execute'), { token, body });
    expect(problemIn(answer)).toMatchObject({
      status: 403,
      code: 'policy_refused',
      retryable: false,
      violations: [
        {
          path: 'body.arguments.source',
          expected: 'a path without .. that is /workspace/in, or below it',
          received: 'nothing',
        },
      ],
    });
    const { text } = await rpc(call(1, 'convert', { source: '/etc', session_id: sessionId }), { token });
    expect(text).toContain('error: policy_refused: arguments.source');
  });

  test('of a move hold for both of its paths', async () => {
    const token = await withPolicy(NEAR);
    const move = async (path: string, destination: string) => {
      const body = { tool_name: 'file', arguments: { operation: 'move', path, destination } };
      return codeOf(await api('POST', inSession('/execute'), { token, body }));
    };
    expect(await move('in/a', 'out/a')).toBe('policy_refused');
    expect(await move('out/a', 'in/a')).toBe('policy_refused');
    expect(await move('in/a', 'in/b')).toBe('ran');
  });

  test('of a call that needs an approval are looked at before anybody is asked', async () => {
    const token = await withPolicy(NEAR);
    const ask = (source: string) => {
      const body = { tool_name: 'approved_convert', arguments: { source } };
      return api('POST', inSession('/execute'), { token, body });
    };
    expect(codeOf(await ask('/etc'))).toBe('policy_refused');
    expect((await ask('/workspace/in/a')).status).toBe(202);
  });

  test(
    'that a workflow makes are looked at when they are known',
    async () => {
      const token = await withPolicy(NEAR);
      const tasks = { one: { tool_name: 'convert', arguments: { source: { $input: '/source' } } } };
      const body = { tasks, input: { source: '/etc/passwd' } };
      const started = WorkflowSchema.parse((await api('POST', '/v1/workflows', { token, body })).json);
      const ended = await eventually(async () => {
        const { text } = await api('GET', `/v1/workflows/${started.workflow_id}`, { token });
        expect(text).not.toContain('"status":"running"');
        return text;
      });
      expect(ended).toContain('policy_refused');
      expect(running).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    'that a program gives are looked at for its own call, and for its inner ones',
    async () => {
      const policy = { arguments: [...NEAR.arguments, { tool: 'python', argument: '/code', one_of: ['x'] }] };
      const token = await withPolicy(policy);
      const begin = (code: string) =>
        api('POST', inSession('/programs'), { token, body: { language: 'python', code, detach: true } });
      expect(codeOf(await begin('y'))).toBe('policy_refused');
      expect(codeOf(await begin('x'))).toBe('ran');
      await host.until(() => running.length === 1);
      const [execution] = running;
      expect(execution?.claims.constraints).toEqual([{ argument: '/code', required: true, one_of: ['x'] }]);
      for (const [number, name, args] of [
        [1, 'convert', { source: '/etc' }],
        [2, 'fetch_page', { target: 'https://evil.test/' }],
        [3, 'ask', { to: 'eve' }],
      ] as const) {
        execution?.call(number, name, args);
        expect(await execution?.answer(number)).toMatchObject({ error: { code: 'policy_refused' } });
      }
      expect(globalThis.fetch).not.toHaveBeenCalled();
      execution?.call(4, 'fetch_page', { target: 'https://a.example.org/' });
      expect(await execution?.answer(4)).toMatchObject({ result: { page: 1 } });
      await execution?.finish();
    },
    TIMEOUT_MS,
  );
});

describe('files by their own routes', () => {
  const file = (method: string, rest: string, token: string, options: ApiOptions = {}) =>
    api(method, inSession(rest), { token, ...options });
  const bytes = { raw: 'x', headers: { 'content-type': 'application/octet-stream' } };

  test.each([
    ['GET', '/files/out/a'],
    ['HEAD', '/files/out/a'],
    ['GET', '/files/%2Fetc/passwd'],
    ['GET', '/files/in%2F..%2F..%2Fetc/passwd'],
    ['GET', '/files/?list'],
    ['GET', '/files/out?watch'],
    ['DELETE', '/files/out/a?recursive'],
    ['GET', '/archive'],
    ['GET', '/archive?path=in/..'],
  ])('%s %s is outside', async (method, rest) => {
    const answer = await request(method, inSession(rest), { token: await withPolicy(NEAR) });
    expect(answer.status).toBe(403);
    if (method !== 'HEAD') expect(await answer.text()).toContain('policy_refused');
  });

  test('a file that is written, kept or read is inside, and its grant says so', async () => {
    const token = await withPolicy(NEAR);
    expect(codeOf(await file('PUT', '/files/out/a', token, bytes))).toBe('policy_refused');
    const count = host.commands.length;
    expect((await file('GET', '/files/in/a', token)).status).toBe(200);
    expect(host.commands.slice(count).map(({ claims }) => [claims.act, claims.constraints])).toEqual([
      [
        'file',
        [
          { argument: '/path', required: true, path_prefixes: ['/workspace/in'] },
          { argument: '/destination', required: false, path_prefixes: ['/workspace/in'] },
        ],
      ],
    ]);
    const keep = { path: 'out/a', name: 'a' };
    const kept = await request('POST', inSession('/artifacts'), { token, body: keep });
    expect(await kept.text()).toContain('policy_refused');
  });

  test('an archive, whose links lead anywhere, is not extracted for who is held to a folder', async () => {
    const token = await withPolicy(NEAR);
    const tar = { raw: 'x', headers: { 'content-type': 'application/x-tar' } };
    expect(codeOf(await file('PUT', '/archive?path=in', token, tar))).toBe('policy_refused');
    expect((await file('GET', '/archive?path=in', token)).status).toBe(200);
  });

  test('operations are those of the tool', async () => {
    const reading = { tool: 'file', argument: '/operation', one_of: ['read', 'list', 'stat'] };
    const token = await withPolicy({ arguments: [reading] });
    expect((await file('GET', '/files/a', token)).status).toBe(200);
    expect(codeOf(await file('PUT', '/files/a', token, bytes))).toBe('policy_refused');
    expect(codeOf(await file('DELETE', '/files/a', token))).toBe('policy_refused');
  });

  test('a host that does not look at constraints is given a grant without them, and the edge looks alone', async () => {
    host.looksAtConstraints = false;
    const token = await withPolicy(NEAR, 'elsewhere');
    const created = await api('POST', '/v1/sessions', { token, body: {} });
    const { session_id } = SessionSchema.parse(created.json);
    host.looksAtConstraints = true;
    const read = (path: string) => api('GET', `/v1/sessions/${session_id}/files/${path}`, { token });
    expect((await read('in/a')).status).toBe(200);
    expect(host.commands.at(-1)?.claims).not.toHaveProperty('constraints');
    const body = { tool_name: 'file', arguments: { operation: 'read', path: 'in/a' } };
    const executed = await api('POST', `/v1/sessions/${session_id}/execute`, { token, body });
    expect(ExecutionSchema.parse(executed.json).status).toBe('succeeded');
    expect(running.at(-1)?.claims).not.toHaveProperty('constraints');
    expect(codeOf(await read('out/a'))).toBe('policy_refused');
  });
});

describe('a shell whose commands are held', () => {
  const LISTING = { arguments: [{ tool: 'shell', argument: '/command', one_of: ['ls'] }] };

  test('has no terminal, no background processes and no input beside it', async () => {
    const token = await withPolicy(LISTING);
    const execute = async (command: string) => {
      const body = { tool_name: 'shell', arguments: { command } };
      return api('POST', inSession('/execute'), { token, body });
    };
    expect(codeOf(await execute('ls; id'))).toBe('policy_refused');
    const ended = ExecutionSchema.parse((await execute('ls')).json);
    expect(ended.status).toBe('succeeded');
    const started = await api('POST', inSession('/processes'), { token, body: { command: 'ls' } });
    expect(codeOf(started)).toBe('policy_refused');
    const terminal = await request('GET', inSession('/terminal'), {
      token,
      headers: { Upgrade: 'websocket' },
    });
    expect(await terminal.text()).toContain('policy_refused');
    const stdin = await api('POST', inSession(`/executions/${ended.execution_id}/stdin`), {
      token,
      body: { data: 'id' },
    });
    expect(codeOf(stdin)).toBe('policy_refused');
    expect((await api('GET', inSession('/processes'), { token })).status).not.toBe(403);
  });
});

describe('tools that the policy leaves out', () => {
  const listed = async (token: string, query = '') =>
    ToolListSchema.parse((await api('GET', `/v1/tools${query}`, { token })).json);
  const namesOf = async (token: string) => (await listed(token)).tools.map(({ name }) => name);
  const McpListSchema = z.object({ tools: z.array(z.object({ name: z.string(), description: z.string() })) });
  const overMcp = async (token: string) => {
    const { messages } = await rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list' }, { token });
    return McpListSchema.parse(messages[0]?.result).tools;
  };

  test(
    'are in no list, no search and no call',
    async () => {
      const token = await withPolicy({
        categories: ['documents', 'files'],
        tools: ['convert', 'file', 'ask'],
      });
      expect(await namesOf(token)).toEqual(['file', 'convert']);
      const names = (await overMcp(token)).map(({ name }) => name);
      expect(names).toContain('convert');
      for (const left of ['python', 'fetch_page', 'ask', 'code', 'answer_program']) {
        expect(names).not.toContain(left);
      }
      const found = await api('GET', '/v1/tools/search?q=fetches%20a%20page%20python', { token });
      const hits = ToolSearchSchema.parse(found.json).tools.map(({ name }) => name);
      expect(hits.filter((name) => !['file', 'convert'].includes(name))).toEqual([]);
      const missing = await byEveryRoad(token, { name: 'nowhere', arguments: {} });
      const left = await byEveryRoad(token, { name: 'fetch_page', arguments: { target: 'x' } });
      expect(left).toEqual(missing);
      const execute = (tool_name: string) =>
        api('POST', inSession('/execute'), { token, body: { tool_name, arguments: { code: '1' } } });
      expect(codeOf(await execute('python'))).toBe('policy_refused');
      const program = { language: 'python', code: '1' };
      expect(codeOf(await api('POST', inSession('/programs'), { token, body: program }))).toBe(
        'policy_refused',
      );
      expect(codeOf(await execute('convert'))).toBe('ran');
      expect(running).toHaveLength(1);
    },
    TIMEOUT_MS,
  );

  test('are gone with their own roads: files, processes and terminals', async () => {
    const token = await withPolicy({ tools: ['python'] });
    expect(codeOf(await api('GET', inSession('/files/a'), { token }))).toBe('policy_refused');
    const process = { command: 'ls' };
    expect(codeOf(await api('POST', inSession('/processes'), { token, body: process }))).toBe(
      'policy_refused',
    );
  });

  test('cannot be made anew by who is held to it', async () => {
    const token = await withPolicy({ tools: ['convert'] });
    const twin = { ...CONVERT, version: '2', code: 'def main(source):\n    return open(source).read()' };
    expect(codeOf(await api('POST', '/v1/tools', { token, body: twin }))).toBe('insufficient_scope');
    expect(codeOf(await api('DELETE', '/v1/tools/convert', { token }))).toBe('insufficient_scope');
  });

  test('what is left shows to what its arguments are held', async () => {
    const token = await withPolicy(NEAR);
    const { tools } = await listed(token);
    const convert = tools.find(({ name }) => name === 'convert');
    expect(convert?.constraints).toEqual([
      { argument: '/source', required: true, path_prefixes: ['/workspace/in'] },
    ]);
    expect(convert?.description).toContain('/source has to be a path without .. that is /workspace/in');
    const file = (await overMcp(token)).find(({ name }) => name === 'file');
    expect(file?.description).toContain('/destination (where given) has to be a path');
    const exported = await api('GET', '/v1/tools?format=openai', { token });
    expect(exported.text).toContain('a URL or host of *.example.org');
    const declared = await api('GET', '/v1/program-tools', { token });
    expect(declared.text).toContain('/to has to be one of');
  });
});

test.each([[{ tool: ['a'] }], ['all'], [null], [{ arguments: [{ tool: 'a', argument: '/x' }] }]])(
  'a token whose policy is %j, which cannot be read, is no token',
  async (policy) => {
    const token = await tokenOf({ claims: { tool_policy: policy } });
    const answer = await api('GET', '/v1/tools', { token });
    expect(problemIn(answer)).toMatchObject({
      code: 'unauthenticated',
      detail: 'the claim tool_policy is not a tool policy',
    });
  },
);
