/** Roads beside the call itself, by which a tool policy is not got round: what requests to files say, environments, long policies. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, type ApiOptions, api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

const TIMEOUT_MS = 60_000;
const FUNCTION = {
  name: 'convert',
  description: 'Converts a document',
  category: 'documents',
  kind: 'code',
  language: 'javascript',
  code: 'function main() { return 1; }',
};
let host: HostDouble;
let sessionId: string;

const withPolicy = (policy?: object) =>
  tokenOf({ claims: { tenant: 'acme', ...(policy === undefined ? {} : { tool_policy: policy }) } });
const codeOf = (answer: ApiAnswer) => (answer.status < 400 ? 'ran' : problemIn(answer).code);

beforeAll(async () => {
  host = await connectFakeHost();
  const token = await withPolicy();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  expect((await api('POST', '/v1/tools', { token, body: FUNCTION })).status).toBe(201);
});
afterEach(() => expect(host.failures).toEqual([]));
afterAll(() => host.close());

describe('what a request to a file says', () => {
  const bytes = { raw: 'x', headers: { 'content-type': 'application/octet-stream' } };
  const file = (method: string, rest: string, token: string): Promise<ApiAnswer> => {
    const options: ApiOptions = method === 'PUT' ? bytes : {};
    return api(method, `/v1/sessions/${sessionId}${rest}`, { token, ...options });
  };

  test.each([
    ['DELETE', '/files/a?recursive', { argument: '/recursive', one_of: [false] }],
    ['PUT', '/files/a?mode=0755', { argument: '/mode', one_of: [0o644] }],
    ['PUT', '/files/a', { argument: '/content', one_of: ['y'] }],
    ['GET', '/files/a', { argument: '/length', one_of: [1] }],
  ])('with %s %s is held like the argument, which may be left out', async (method, rest, constraint) => {
    const token = await withPolicy({ arguments: [{ tool: 'file', required: false, ...constraint }] });
    expect(codeOf(await file(method, rest, token))).toBe('policy_refused');
  });

  test('is allowed where the argument would be', async () => {
    const token = await withPolicy({
      arguments: [
        { tool: 'file', argument: '/recursive', required: false, one_of: [false] },
        { tool: 'file', argument: '/mode', required: false, one_of: [0o644] },
      ],
    });
    expect(codeOf(await file('DELETE', '/files/a', token))).toBe('ran');
    expect(codeOf(await file('PUT', '/files/a?mode=0644', token))).toBe('ran');
    expect(codeOf(await file('PUT', '/files/a', token))).toBe('ran');
    expect((await file('GET', '/files/a', token)).status).toBe(200);
  });

  test('reaches the host with the longest policy that a token may have', async () => {
    const folders = Array.from({ length: 32 }, (_, n) => `/workspace/${'x'.repeat(100)}${n}`);
    const rule = { tool: 'file', argument: '/path', path_prefixes: [...folders.slice(1), '/workspace/in'] };
    const token = await withPolicy({ arguments: [rule] });
    expect((await file('GET', '/files/in/a', token)).status).toBe(200);
    expect(host.commands.at(-1)?.claims.constraints).toHaveLength(2);
  });
});

describe('the environment of a new session, which says what its programs do', () => {
  const env = { BASH_ENV: '$(id)' };

  test.each([
    { tools: ['shell', 'convert'], arguments: [{ tool: 'shell', argument: '/command', one_of: ['ls'] }] },
    { tools: ['convert'] },
    { categories: ['documents'] },
  ])(
    'is not given by who may run nothing freely: %j',
    async (policy) => {
      const token = await withPolicy(policy);
      const once = { tool_name: 'convert', arguments: {}, env };
      expect(codeOf(await api('POST', '/v1/sessions', { token, body: { env } }))).toBe('policy_refused');
      expect(codeOf(await api('POST', '/v1/execute', { token, body: once }))).toBe('policy_refused');
      expect((await rpc(call(1, 'create_session', { env }), { token })).text).toContain('policy_refused');
      expect(codeOf(await api('POST', '/v1/sessions', { token, body: {} }))).toBe('ran');
    },
    TIMEOUT_MS,
  );

  test('is given by who may run any program, and by who is held to nothing', async () => {
    for (const token of [await withPolicy({ tools: ['python'] }), await withPolicy()]) {
      expect(codeOf(await api('POST', '/v1/sessions', { token, body: { env } }))).toBe('ran');
    }
  });
});
