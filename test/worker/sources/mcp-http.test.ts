import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ToolListSchema, ToolSearchSchema } from '../../../worker/routes/tools.ts';
import { ALL_SCOPES } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { call, rpc } from '../mcp/rpc.ts';
import { create, ready, refresh, scopes, tool, toolNames, useHttpSources } from './http-sources.ts';
import { add, scriptedServer, sessionServer, statelessServer } from './stand-ins.ts';

const sources = useHttpSources();
const { execute, executed, internet } = sources;

describe('an MCP server over HTTP', () => {
  test('of the newer era gives its tools, and each is called as any other', async () => {
    internet().host('mcp.example.com', statelessServer(add));
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
    const kept = await api(
      'GET',
      `/v1/sessions/${sources.sessionId()}/executions/${execution.execution_id}`,
      {
        token: await scopes(),
      },
    );
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
    internet().host('old.example.com', server.answer);
    const source = await ready({ name: 'old', url: 'https://old.example.com/mcp' });
    expect(source.server).toMatchObject({ name: 'older stand-in', protocol_version: '2025-11-25' });
    expect(await executed('old.echo', { text: 'one' })).toMatchObject({ status: 'succeeded', stdout: 'one' });
    expect(server.sessions()).toBe(1);
    server.forget();
    expect(await executed('old.echo', { text: 'two' })).toMatchObject({ status: 'succeeded', stdout: 'two' });
    expect(server.sessions()).toBe(1);
  });

  test('is found by search, called through MCP and from a model, and by nobody without its scope', async () => {
    internet().host('mcp.example.com', statelessServer(add));
    await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    const found = await api('GET', '/v1/tools/search?q=adds%20two%20numbers', { token: await scopes() });
    expect(ToolSearchSchema.parse(found.json).tools[0]?.name).toBe('calc.add');
    const over = await rpc(call(1, 'calc.add', { a: 1, b: 1, session_id: sources.sessionId() }), {
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
    const fromModel = await api('POST', `/v1/sessions/${sources.sessionId()}/tool_calls`, {
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
    const refused = await api('POST', `/v1/sessions/${sources.sessionId()}/execute`, {
      token: without,
      body,
    });
    expect(problemIn(refused).code).toBe('tool_not_found');
    expect(await toolNames(await scopes(ALL_SCOPES, 'globex'))).not.toContain('calc.add');
  });

  test('has rules for all its tools and for single ones', async () => {
    internet().host(
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
    internet().host('mcp.example.com', statelessServer(add));
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
    internet().host('mcp.example.com', statelessServer(add));
    await ready({ name: 'calc', url: 'https://mcp.example.com/mcp' });
    const disabled = { kind: 'mcp_http', url: 'https://mcp.example.com/mcp', disabled: true };
    const put = await api('PUT', '/v1/tool_sources/calc', { token: await scopes(), body: disabled });
    expect(put.json).toMatchObject({ status: 'disabled' });
    const before = internet().requests.length;
    expect(await refresh('calc')).toMatchObject({ status: 'disabled', next_poll_at: null });
    expect(await executed('calc.add', { a: 1, b: 1 })).toMatchObject({
      status: 'failed',
      error: { name: 'SourceUnavailable', message: 'the source is disabled' },
    });
    expect(internet().requests.length).toBe(before);
  });
});
