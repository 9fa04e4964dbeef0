import { listDurableObjectIds } from 'cloudflare:test';
import { env, exports } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN, ORIGIN } from '../issuer-bindings.ts';
import { call, initialize, MODERN, messagesIn, modern, openRpc, rpc } from './rpc.ts';

let host: HostDouble;
let sessionId: string;

const Arguments = z.object({ command: z.string() });

const script: Script = async (execution) => {
  execution.started();
  const { command } = Arguments.parse(execution.arguments);
  if (command === 'hold') {
    await execution.interrupted;
    return execution.finish({ status: 'interrupted', exit_code: null });
  }
  await execution.write('stdout', `${command}\n`);
  return execution.finish();
};

const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
const bob = () => tokenOf({ claims: { tenant: 'acme', sub: 'bob' } });

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };

describe('who may ask', () => {
  test('a request without a token learns where to get one', async () => {
    const answer = await rpc(list);
    expect(answer.status).toBe(401);
    expect(answer.headers.get('WWW-Authenticate')).toBe(
      `Bearer resource_metadata="${ORIGIN}/.well-known/oauth-protected-resource/mcp"`,
    );
    const metadata = await api('GET', '/.well-known/oauth-protected-resource/mcp');
    expect(metadata.json).toMatchObject({
      resource: `${ORIGIN}/mcp`,
      authorization_servers: expect.arrayContaining(['https://issuer.test']),
      bearer_methods_supported: ['header'],
    });
  });

  test('a token for this resource alone, as clients ask for it, is taken here and nowhere else', async () => {
    const token = await tokenOf({ claims: { aud: `${ORIGIN}/mcp` } });
    expect((await rpc(list, { token })).status).toBe(200);
    const elsewhere = await api('GET', '/v1/sessions', { token });
    expect(problemIn(elsewhere)).toMatchObject({
      code: 'unauthenticated',
      detail: 'the token is for /mcp alone',
    });
    expect(elsewhere.headers.get('WWW-Authenticate')).toContain('/oauth-protected-resource"');
    const other = await tokenOf({ claims: { aud: `${ORIGIN}/mcp/x` } });
    expect((await rpc(list, { token: other })).status).toBe(401);
  });

  test('a token without the scope of a tool learns it with the metadata of this resource', async () => {
    const token = await tokenOf({ claims: { scope: 'sessions:read' } });
    const answer = await rpc(call(1, 'create_session', {}), { token });
    expect(answer.status).toBe(403);
    expect(answer.headers.get('WWW-Authenticate')).toContain('/oauth-protected-resource/mcp"');
  });

  test('a token of an unknown key is refused, and the operator’s is for other routes', async () => {
    expect((await rpc(list, { token: `${await alice()}x` })).status).toBe(401);
    expect((await rpc(list, { token: OPERATOR_TOKEN })).status).toBe(403);
  });

  test.each([
    ['another site', 'https://evil.example'],
    ['no site', 'null'],
    ['another port', 'http://127.0.0.1:1'],
  ])('a page of %s may not', async (_site, origin) => {
    const answer = await rpc(list, { token: await alice(), headers: { Origin: origin } });
    expect(answer.status).toBe(403);
    expect((await rpc(list, { token: await alice(), headers: { Origin: ORIGIN } })).status).toBe(200);
  });

  test.each([
    ['evil.example', 403],
    ['127.0.0.1.evil.example', 403],
    ['localhost:8787', 200],
    ['[::1]:8787', 200],
  ])('a request to the name %s is answered %i', async (name, status) => {
    const response = await exports.default.fetch(
      new Request(`http://${name}/mcp`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${await alice()}`,
          Accept: 'application/json, text/event-stream',
          'Content-Type': 'application/json',
        },
        body: JSON.stringify(list),
      }),
    );
    await response.body?.cancel();
    expect(response.status).toBe(status);
  });

  test('lists what the scopes permit and nothing else', async () => {
    const namesFor = async (scope: string) => {
      const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope } });
      const { messages } = await rpc(list, { token });
      return messages[0]?.result?.tools;
    };
    expect(await namesFor('sessions:read')).toEqual([]);
    expect(await namesFor('tools:python')).toMatchObject([
      { name: 'answer_program' },
      { name: 'call_tool' },
      { name: 'code' },
      {
        name: 'execute_code',
        inputSchema: {
          properties: { language: { enum: ['python'] } },
          required: ['language', 'code', 'session_id'],
        },
      },
      { name: 'search_tools' },
    ]);
    expect(await namesFor('tools:python sessions:write')).toMatchObject([
      { name: 'answer_program' },
      { name: 'call_tool' },
      { name: 'code' },
      { name: 'create_session' },
      { name: 'delete_session' },
      { name: 'execute_code', inputSchema: { required: ['language', 'code'] } },
      { name: 'search_tools' },
    ]);
  });

  test('a call without the scope of its tool is refused with the scope to ask for', async () => {
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: 'tools:python' } });
    const answer = await rpc(call(1, 'shell', { command: 'x', session_id: sessionId }), { token });
    expect(answer.status).toBe(403);
    expect(answer.headers.get('WWW-Authenticate')).toContain('error="insufficient_scope"');
    expect(answer.headers.get('WWW-Authenticate')).toContain('scope="tools:shell"');
    const command = await rpc(call(3, 'run_command', { command: 'x', session_id: sessionId }), { token });
    expect(command.headers.get('WWW-Authenticate')).toContain('scope="tools:shell"');
    const shell = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: 'tools:shell' } });
    const code = { language: 'python', code: '1', session_id: sessionId };
    const executed = await rpc(call(4, 'execute_code', code), { token: shell });
    expect(executed.headers.get('WWW-Authenticate')).toContain('scope="tools:python"');
    const script = await rpc(call(5, 'execute_code', { ...code, language: 'javascript' }), { token });
    expect(script.text).toContain('arguments.language');
    const created = await rpc(call(2, 'create_session', {}), { token });
    expect(created.headers.get('WWW-Authenticate')).toContain('scope="sessions:write"');
    expect(host.session(sessionId).executions.size).toBe(0);
  });

  test('a call without a session needs the right to make one', async () => {
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: 'tools:shell' } });
    const { messages } = await rpc(call(1, 'shell', { command: 'x' }), { token });
    expect(messages[0]?.result).toMatchObject({ isError: true });
    expect(JSON.stringify(messages[0]?.result)).toContain('the token lacks sessions:write');
  });

  test('somebody else’s session is not found', async () => {
    const answer = await rpc(call(1, 'shell', { command: 'x', session_id: sessionId }), {
      token: await bob(),
    });
    expect(JSON.stringify(answer.messages[0]?.result)).toContain('error: not_found');
  });
});

describe('R58: the version of a client before 2026-07-28', () => {
  test.each(['2025-11-25', '2025-06-18', '2025-03-26'])('%s is echoed', async (version) => {
    const { status, messages } = await rpc(initialize(version), { token: await alice() });
    expect(status).toBe(200);
    expect(messages[0]?.result).toMatchObject({
      protocolVersion: version,
      capabilities: { tools: {} },
      serverInfo: { name: 'sandgate' },
    });
  });

  test('that nobody knows is answered with one that the gateway speaks', async () => {
    const { messages } = await rpc(initialize('1999-01-01'), { token: await alice() });
    expect(messages[0]?.result?.protocolVersion).toBe('2025-11-25');
  });

  test('that is missing is an error of the parameters', async () => {
    const { messages } = await rpc(initialize(undefined), { token: await alice() });
    expect(messages[0]).toMatchObject({
      id: 0,
      error: { code: -32_602, message: 'params.protocolVersion: expected string' },
    });
  });

  test('need not be settled before the tools are listed', async () => {
    const { status, messages } = await rpc(list, { token: await alice() });
    expect([status, messages[0]?.id]).toEqual([200, 1]);
    expect(messages[0]?.result).toHaveProperty('tools');
  });

  test('in a header that nobody knows is refused', async () => {
    const answer = await rpc(list, {
      token: await alice(),
      headers: { 'Mcp-Protocol-Version': '1999-01-01' },
    });
    expect(answer.status).toBe(400);
  });
});

describe('a client of 2026-07-28', () => {
  test('asks what the server speaks, and is told', async () => {
    const { body, headers } = modern({ jsonrpc: '2.0', id: 1, method: 'server/discover' });
    const { messages } = await rpc(body, { token: await alice(), headers });
    expect(messages[0]?.result).toMatchObject({ supportedVersions: [MODERN], capabilities: { tools: {} } });
  });

  test('of a version that is not spoken learns the ones that are', async () => {
    const { body, headers } = modern(list, { 'io.modelcontextprotocol/protocolVersion': '2027-01-01' });
    const answer = await rpc(body, {
      token: await alice(),
      headers: { ...headers, 'Mcp-Protocol-Version': '2027-01-01' },
    });
    expect(answer.status).toBe(400);
    expect(answer.text).toContain(MODERN);
  });
});

describe('what is no message', () => {
  test.each([
    ['nothing', ''],
    ['half an object', '{"jsonrpc":"2.0"'],
    ['a key twice', '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}'],
    ['a number that would be rounded', '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}'],
    ['bytes', '\u0000\u0001'],
  ])('%s is a parse error', async (_what, text) => {
    const answer = await rpc(text, { token: await alice() });
    expect(answer.status).toBe(400);
    expect(answer.messages[0]).toMatchObject({ id: null, error: { code: -32_700 } });
  });

  test.each([
    ['a number', '7'],
    ['null', 'null'],
    ['an object of another kind', '{"hello":"world"}'],
    ['an empty batch', '[]'],
    ['a request without a version', '{"id":1,"method":"ping"}'],
    ['a method that is no text', '{"jsonrpc":"2.0","id":1,"method":7}'],
  ])('%s is refused with an error of the protocol', async (_what, text) => {
    const answer = await rpc(text, { token: await alice() });
    expect(answer.status).toBe(400);
    expect(answer.messages[0]?.error?.code).toBeLessThan(-32_000);
  });

  test('a method that the server does not have is said to be so', async () => {
    const { messages } = await rpc({ jsonrpc: '2.0', id: 1, method: 'no/such' }, { token: await alice() });
    expect(messages[0]).toMatchObject({ id: 1, error: { code: -32_601 } });
  });

  test.each([
    ['tools/list', { cursor: 7 }, 'params.cursor: expected string'],
    ['tools/call', {}, 'params.name: expected string'],
    ['tools/call', { name: 'shell', arguments: ['ls'] }, 'params.arguments: expected record'],
    ['initialize', { protocolVersion: '2025-11-25', capabilities: {} }, 'params.clientInfo: expected object'],
  ])('wrong parameters of %s are named', async (method, params, message) => {
    const { messages } = await rpc({ jsonrpc: '2.0', id: 'a', method, params }, { token: await alice() });
    expect(messages).toEqual([{ jsonrpc: '2.0', id: 'a', error: { code: -32_602, message } }]);
  });

  test('a cursor of another list is an error of the parameters', async () => {
    for (const cursor of ['0', '!', 'eyJv']) {
      const { messages } = await rpc({ ...list, params: { cursor } }, { token: await alice() });
      expect(messages[0]?.error?.code).toBe(-32_602);
    }
  });

  test('another kind of body, or one that is too long, is refused', async () => {
    const token = await alice();
    const headers = { 'Content-Type': 'text/plain' };
    expect((await rpc(list, { token, headers })).status).toBe(415);
    const long = { ...list, params: { cursor: 'x'.repeat(2_200_000) } };
    expect((await rpc(long, { token })).status).toBe(413);
  });

  test('other methods of HTTP are not served', async () => {
    for (const method of ['GET', 'DELETE', 'PUT']) {
      const answer = await api(method, '/mcp', { token: await alice() });
      expect(problemIn(answer)).toMatchObject({ status: 405 });
      // Only who comes back for a stream that was cut may GET.
      expect(answer.headers.get('Allow')).toBe(method === 'GET' ? 'POST' : 'POST, GET, HEAD');
    }
  });
});

describe('an MCP session', () => {
  const idOf = async (token: string) => {
    const { headers } = await rpc(initialize('2025-11-25'), { token });
    return headers.get('Mcp-Session-Id') ?? '';
  };

  test('is given with the answer to initialize, and is the caller’s alone', async () => {
    const id = await idOf(await alice());
    expect(id).toMatch(/^mcp_[A-Za-z0-9_-]{38}$/);
    const headers = { 'Mcp-Session-Id': id };
    expect((await rpc(list, { token: await alice(), headers })).status).toBe(200);
    const awake = (await listDurableObjectIds(env.MCP_CALLS)).length;
    for (const [token, other] of [
      [await bob(), id],
      [await alice(), `${id.slice(0, -1)}${id.endsWith('A') ? 'B' : 'A'}`],
      [await alice(), 'mcp_'],
    ] as const) {
      expect((await rpc(list, { token, headers: { 'Mcp-Session-Id': other } })).status).toBe(404);
    }
    expect((await listDurableObjectIds(env.MCP_CALLS)).length).toBe(awake);
  });

  /** A call that holds, in the given MCP session; resolves when the program runs. */
  async function hold(id: number | string, headers: Record<string, string>) {
    const before = host.session(sessionId).executions.size;
    const response = await openRpc(call(id, 'shell', { command: 'hold', session_id: sessionId }), {
      token: await alice(),
      headers,
    });
    await host.until(() => host.session(sessionId).executions.size > before);
    const [execution] = [...host.session(sessionId).executions.values()].slice(-1);
    if (execution === undefined) throw new Error('nothing runs');
    return { response, execution };
  }

  function cancelled(requestId: unknown) {
    return { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason: 'test' } };
  }

  test('R32: a cancellation stops its own call, whichever strays come before it, and the request has no answer', async () => {
    const token = await alice();
    const headers = { 'Mcp-Session-Id': await idOf(token) };
    const other = { 'Mcp-Session-Id': await idOf(token) };
    const { response, execution } = await hold(7, headers);
    let isInterrupted = false;
    void execution.interrupted.then(() => {
      isInterrupted = true;
    });
    for (const stray of [999, '7', null, {}]) {
      expect((await rpc(cancelled(stray), { token, headers })).status).toBeLessThan(500);
    }
    expect((await rpc(cancelled(7), { token, headers: other })).status).toBe(202);
    expect((await rpc(cancelled(7), { token: await bob() })).status).toBe(202);
    const { messages } = await rpc(call(8, 'shell', { command: 'alive?' }), { token });
    expect(messages[0]).toMatchObject({ id: 8, result: { isError: false } });
    expect(isInterrupted).toBe(false);

    expect((await rpc(cancelled(7), { token, headers })).status).toBe(202);
    await execution.interrupted;
    expect(messagesIn(response, await response.text())).toEqual([]);
    expect((await rpc(cancelled(7), { token, headers })).status).toBe(202);
    const after = await rpc(call(9, 'shell', { command: 'after', session_id: sessionId }), {
      token,
      headers,
    });
    expect(after.messages[0]).toMatchObject({ id: 9, result: { content: [{ text: 'after\n' }] } });
  });

  test('R32: a client without one may cancel too, as long as it is clear which call is meant', async () => {
    const token = await alice();
    const { response, execution } = await hold('only', {});
    expect((await rpc(cancelled('only'), { token })).status).toBe(202);
    await execution.interrupted;
    expect(messagesIn(response, await response.text())).toEqual([]);
  });

  test('R32: a client that only drops its connection does not cancel', async () => {
    const token = await alice();
    const { response, execution } = await hold(11, {});
    await response.body?.cancel();
    const path = `/v1/sessions/${sessionId}/executions/${execution.id}`;
    expect((await api('GET', path, { token })).json).toMatchObject({ status: 'running' });
    const interrupted = await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token, body: {} });
    expect(interrupted.json).toMatchObject({ execution_id: execution.id });
  });

  test('R32: in the newer era a connection that is dropped is a call that is given up', async () => {
    const { body, headers } = modern({
      ...call(12, 'shell', { command: 'hold', session_id: sessionId }),
    });
    const before = host.session(sessionId).executions.size;
    const response = await openRpc(body, { token: await alice(), headers });
    await host.until(() => host.session(sessionId).executions.size > before);
    const [execution] = [...host.session(sessionId).executions.values()].slice(-1);
    await response.body?.cancel();
    await execution?.interrupted;
  });
});
