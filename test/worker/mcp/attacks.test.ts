import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api } from '../harness/api.ts';
import { open, useScriptedHost } from '../harness/scripted-host.ts';
import { modern } from './rpc.ts';

const list = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };
const call = {
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'delete_session', arguments: { session_id: 'x' } },
};
const HEADER_MISMATCH = -32_020;
const ErrorSchema = z.object({ error: z.object({ code: z.number() }) });

async function send(
  message: Record<string, unknown>,
  change: (headers: Record<string, string | undefined>) => Record<string, string | undefined>,
): Promise<ApiAnswer> {
  const { body, headers } = modern(message);
  const sent = Object.entries(change({ ...headers, Accept: 'application/json, text/event-stream' })).flatMap(
    ([name, value]): [string, string][] => (value === undefined ? [] : [[name, value]]),
  );
  return api('POST', '/mcp', { token: await tokenOf(), headers: Object.fromEntries(sent), body });
}

describe('A35: the headers of a message of 2026-07-28', () => {
  test.each([
    ['name another method', list, { 'Mcp-Method': 'tools/call' }],
    ['name no method', list, { 'Mcp-Method': undefined }],
    ['name another tool', call, { 'Mcp-Name': 'python' }],
    ['name no tool', call, { 'Mcp-Name': undefined }],
    ['name another version', list, { 'Mcp-Protocol-Version': '2025-11-25' }],
    ['name no version', call, { 'Mcp-Protocol-Version': undefined }],
  ])('that %s than the body are refused', async (_name, message, headers) => {
    const answer = await send(message, (own) => ({ ...own, ...headers }));
    expect(answer.status, answer.text).toBe(400);
    expect(ErrorSchema.parse(answer.json).error.code).toBe(HEADER_MISMATCH);
  });

  test('that are those of the body are no reason to refuse', async () => {
    expect((await send(list, (own) => own)).status).toBe(200);
    expect((await send(call, (own) => own)).status).toBe(200);
  });
});

describe('A35: a call whose headers are not those of its body', () => {
  useScriptedHost();

  test('has no effect, and has it with the right ones', async () => {
    const token = await tokenOf();
    const sessionId = await open(token);
    const params = { name: 'delete_session', arguments: { session_id: sessionId } };
    const close = { ...call, params };
    expect((await send(close, (own) => ({ ...own, 'Mcp-Name': 'python' }))).status).toBe(400);
    expect((await api('GET', `/v1/sessions/${sessionId}`, { token })).status).toBe(200);
    const closed = await send(close, (own) => own);
    expect(closed.status, closed.text).toBe(200);
    expect((await api('GET', `/v1/sessions/${sessionId}`, { token })).status, closed.text).toBe(404);
  });
});

test('A35: the id of an MCP session is no token', async () => {
  const token = await tokenOf();
  const initialize = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
  };
  const headers = { Accept: 'application/json, text/event-stream' };
  const begun = await api('POST', '/mcp', { token, headers, body: initialize });
  const session = { ...headers, 'Mcp-Session-Id': begun.headers.get('Mcp-Session-Id') ?? '' };
  expect(session['Mcp-Session-Id']).not.toBe('');
  expect((await api('POST', '/mcp', { headers: session, body: list })).status).toBe(401);
  expect((await api('POST', '/mcp', { token, headers: session, body: list })).status).toBe(200);
});
