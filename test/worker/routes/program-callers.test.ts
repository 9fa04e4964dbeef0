import { describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { api, problemIn } from '../harness/api.ts';
import { ASK, STOCK_PRICE } from '../harness/example-tools.ts';
import { host, register, running, sessionId, token, useProgramSession } from '../harness/program-session.ts';
import { call, rpc } from '../mcp/rpc.ts';

useProgramSession();

describe('a tool for code only', () => {
  const CODE_ONLY = { ...ASK, name: 'quiet', allowed_callers: ['code_execution_20250825', 'programmatic'] };
  const names = async (query: string) => {
    const answer = await api('GET', `/v1/tools${query}`, { token: await token() });
    return ListedSchema.parse(answer.json).tools;
  };

  test('is not offered directly, and is offered to code', async () => {
    await register(CODE_ONLY);
    expect((await names('')).map(({ name }) => name)).not.toContain('quiet');
    expect((await names('?format=anthropic')).map(({ name }) => name)).not.toContain('quiet');
    expect((await names('/search?q=quiet%20asks%20a%20person')).map(({ name }) => name)).not.toContain(
      'quiet',
    );
    const anthropic = (await names('?format=anthropic&callers=any')).find(({ name }) => name === 'quiet');
    expect(anthropic).toMatchObject({ allowed_callers: ['code_execution_20250825'] });
    const openai = (await names('?format=openai-responses&callers=any')).find(({ name }) => name === 'quiet');
    expect(openai).toMatchObject({ allowed_callers: ['programmatic'] });
    const body = { tool_name: 'quiet', arguments: { question: 'a' } };
    const refused = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await token(), body });
    expect(problemIn(refused)).toMatchObject({
      code: 'tool_unavailable',
      detail: expect.stringContaining('programs only'),
    });
    const { tools } = ProgramToolsSchema.parse(
      (await api('GET', '/v1/program-tools', { token: await token() })).json,
    );
    expect(tools.map(({ name }) => name)).toEqual(['people.ask', 'quiet']);
  });

  test.each([
    [['code'], ['programmatic'], ['code_execution_20250825']],
    [
      ['direct', 'code_execution_20260120'],
      ['direct', 'programmatic'],
      ['direct', 'code_execution_20260120'],
    ],
    [
      ['direct', 'programmatic'],
      ['direct', 'programmatic'],
      ['direct', 'code_execution_20250825'],
    ],
    [['direct'], ['direct'], ['direct']],
    [undefined, ['direct', 'programmatic'], ['direct', 'code_execution_20250825']],
  ])('says who may call it in the words of either API: %j', async (callers, openai, anthropic) => {
    await register({ ...ASK, name: 'known', allowed_callers: callers });
    const callersIn = async (query: string) =>
      (await names(query)).find(({ name }) => name === 'known')?.allowed_callers;
    expect(await callersIn('?format=openai-responses&callers=any')).toEqual(openai);
    expect(await callersIn('?format=anthropic&callers=any')).toEqual(anthropic);
  });

  test('is called by code that a model API runs, if the call says so', async () => {
    await register({ ...STOCK_PRICE, name: 'price', allowed_callers: ['code_execution_20250825'] });
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ price: 7 }));
    const ask = async (caller?: object) => {
      const content = [{ type: 'tool_use', id: 't1', name: 'price', input: { symbol: 'x' }, caller }];
      const body = { role: 'assistant', content };
      return (await api('POST', `/v1/sessions/${sessionId}/tool_calls`, { token: await token(), body })).text;
    };
    expect(await ask({ type: 'code_execution_20250825', tool_id: 'srv_1' })).toContain(
      '"status":"succeeded"',
    );
    expect(await ask({ type: 'direct' })).toContain('programs only');
    expect(await ask()).toContain('programs only');
  });
});

test('over MCP a program is run, asks, and is answered', async () => {
  const tools = async (id: number, name: string, args: object) => {
    const { messages } = await rpc(call(id, name, { session_id: sessionId, ...args }), {
      token: await token(),
    });
    return McpResultSchema.parse(messages[0]?.result);
  };
  const asking = tools(1, 'code', { language: 'python', code: 'x' });
  await host.until(() => running.length === 1);
  const [execution] = running;
  execution?.call(1, 'people.ask', { question: 'a' });
  execution?.waits();
  const { content, structuredContent: asked } = await asking;
  expect(content[0]?.text).toContain('waits for 1 of your tools');
  const [one] = asked.pending;
  expect(one).toMatchObject({ tool_name: 'people.ask', arguments: { question: 'a' } });
  const answering = tools(2, 'answer_program', {
    program_id: asked.program_id,
    results: [{ id: one?.id, content: 'yes' }],
  });
  expect(await execution?.answer(1)).toEqual({ call: 1, result: 'yes' });
  execution?.goesOn();
  execution?.part('value', "'yes'");
  await execution?.finish();
  const ended = await answering;
  expect(ended).toMatchObject({ structuredContent: { status: 'succeeded', pending: [] } });
  expect(ended.content[0]?.text).toContain("'yes'");
});

const ListedSchema = z.object({ tools: z.array(z.looseObject({ name: z.string() })) });
const ProgramToolsSchema = z.object({ tools: z.array(z.object({ name: z.string() })) });
const McpResultSchema = z.looseObject({
  content: z.array(z.looseObject({ text: z.string() })),
  structuredContent: ProgramSchema.pick({ program_id: true, status: true, pending: true }),
});
