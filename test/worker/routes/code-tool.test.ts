import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { api, problemIn } from '../harness/api.ts';
import { ASK } from '../harness/example-tools.ts';
import {
  get,
  host,
  register,
  reply,
  running,
  sessionId,
  token,
  useProgramSession,
} from '../harness/program-session.ts';
import { call, rpc } from '../mcp/rpc.ts';

useProgramSession();

const FUNCTION = 'tools.people.ask(*, question: str, urgent: bool | None = None) -> Any\nAsks a person';

const ListSchema = z.object({ tools: z.array(z.looseObject({})), next_cursor: z.string().nullable() });
const CodeToolSchema = z.object({
  name: z.literal('code'),
  description: z.string(),
  parameters: z.object({
    properties: z.object({
      language: z.object({ enum: z.array(z.string().nullable()) }),
      code: z.object({ description: z.string() }),
      program_id: z.looseObject({}),
    }),
  }),
});

/** Where each format keeps what a function is. */
const DECLARED = z.union([
  z.object({ function: z.looseObject({ name: z.string() }) }).transform((tool) => tool.function),
  z
    .looseObject({ name: z.string(), input_schema: z.unknown() })
    .transform((tool) => ({ ...tool, parameters: tool.input_schema })),
  z
    .looseObject({ name: z.string(), inputSchema: z.unknown() })
    .transform((tool) => ({ ...tool, parameters: tool.inputSchema })),
  z
    .looseObject({ name: z.string(), parametersJsonSchema: z.unknown() })
    .transform((tool) => ({ ...tool, parameters: tool.parametersJsonSchema })),
  z.looseObject({ name: z.string() }),
]);

async function listed(query: string, scope?: string) {
  const answer = await api('GET', `/v1/tools?${query}`, { token: await token(scope) });
  const { tools, next_cursor } = ListSchema.parse(answer.json);
  const all = tools.flatMap((tool) =>
    'functionDeclarations' in tool ? z.array(z.unknown()).parse(tool.functionDeclarations) : [tool],
  );
  return { tools: z.array(DECLARED).parse(all), next_cursor };
}

async function codeIn(query: string, scope?: string) {
  const { tools } = await listed(query, scope);
  const found = tools.find(({ name }) => name === 'code');
  return found === undefined ? undefined : CodeToolSchema.parse(found);
}

describe('the tool `code`', () => {
  test.each(['anthropic', 'gemini', 'mcp'])('says in %s which functions there are', async (format) => {
    const code = await codeIn(`format=${format}`);
    expect(code?.description).toContain(FUNCTION);
    expect(code?.parameters.properties.language.enum).toEqual(['python', 'javascript']);
  });

  test.each(['openai', 'openai-responses'])(
    'says it in %s at its argument, as descriptions are short',
    async (format) => {
      const code = await codeIn(`format=${format}&strict=true`);
      expect(code?.description.length).toBeLessThanOrEqual(1_024);
      expect(code?.parameters.properties.code.description).toContain(FUNCTION);
    },
  );

  test('is for who may run programs, in the languages that they may use', async () => {
    expect(await codeIn('format=openai', 'tools:shell tools:client')).toBeUndefined();
    const code = await codeIn('format=anthropic', 'tools:node tools:client');
    expect(code?.parameters.properties.language.enum).toEqual(['javascript']);
    expect(code?.description).toContain('tools.people.ask(args: {');
    expect((await codeIn('format=anthropic', 'tools:python'))?.description).toContain('no functions yet');
  });

  test('stands behind the built-in tools of the first page, in its category, and among no others', async () => {
    const { tools, next_cursor } = await listed('format=anthropic&category=code&limit=1');
    expect(tools.map(({ name }) => name)).toEqual(['python', 'node', 'shell', 'run', 'code']);
    expect(next_cursor).toBeNull();
    expect(await codeIn('format=anthropic&category=files')).toBeUndefined();
    await register({ ...ASK, name: 'people.tell' });
    const first = await listed('format=anthropic&limit=1');
    const second = await listed(`format=anthropic&limit=1&cursor=${first.next_cursor}`);
    expect(second.tools.map(({ name }) => name)).not.toContain('code');
    expect((await listed('')).tools.map(({ name }) => name)).not.toContain('code');
  });

  test('names as many functions as have room, and says how many more there are', async () => {
    const tools = Array.from({ length: 30 }, (_, index) => ({
      ...ASK,
      name: `asks.n${index}`,
      description: 'Asks a person at length. '.repeat(60),
    }));
    const answer = await api('POST', '/v1/tools', { token: await token(), body: { tools } });
    expect(answer.status, answer.text).toBe(200);
    const description = (await codeIn('format=anthropic'))?.description ?? '';
    expect(description.length).toBeLessThan(17_000);
    expect(description).toMatch(/and 2\d more: tools\.names has their names/);
  });

  test('is of no registered tool', async () => {
    const refused = await api('POST', '/v1/tools', { token: await token(), body: { ...ASK, name: 'code' } });
    expect(problemIn(refused)).toMatchObject({ code: 'invalid_request' });
  });
});

const AnsweredSchema = z.object({
  messages: z.array(z.looseObject({ content: z.unknown().optional() })),
  calls: z.array(
    z.object({ id: z.string(), execution_id: z.string().nullable(), status: z.string().nullable() }),
  ),
  pending: z.array(
    z.object({ id: z.string(), program_id: z.string(), tool_name: z.string(), arguments: z.unknown() }),
  ),
});

const PROGRAM = { language: 'python', code: 'tools.people.ask(question="a")' };

function message(...calls: [name: string, args: object][]) {
  return {
    role: 'assistant',
    tool_calls: calls.map(([name, args], index) => ({
      id: `call_${index}`,
      type: 'function',
      function: { name, arguments: JSON.stringify(args) },
    })),
  };
}

async function toolCalls(body: object, { key, scope }: { key?: string; scope?: string } = {}) {
  const answer = await api('POST', `/v1/sessions/${sessionId}/tool_calls`, {
    token: await token(scope),
    body,
    headers: key === undefined ? {} : { 'Idempotency-Key': key },
  });
  expect(answer.status, answer.text).toBe(200);
  return AnsweredSchema.parse(answer.json);
}

async function newest(count: number) {
  await host.until(() => running.length === count);
  const execution = running.at(-1);
  if (execution === undefined) throw new Error('nothing runs');
  return execution;
}

/** The program of a message asks its client, and the answer of the message says so. */
async function asked(body: object, key?: string) {
  const answering = toolCalls(body, key === undefined ? {} : { key });
  const execution = await newest(running.length + 1);
  execution.call(1, 'people.ask', { question: 'a' });
  execution.waits();
  return { answer: await answering, execution };
}

describe('a call of `code` in a message', () => {
  test('runs the program and is answered with what it gave', async () => {
    const answering = toolCalls(message(['code', PROGRAM]));
    const execution = await newest(1);
    expect(execution.arguments).toMatchObject({
      code: PROGRAM.code,
      program: { tools: [{ name: 'people.ask' }] },
    });
    await execution.write('stdout', 'said\n');
    execution.part('value', "'yes'");
    await execution.finish();
    const { messages, calls, pending } = await answering;
    expect(messages).toEqual([
      { role: 'tool', tool_call_id: 'call_0', content: "[stdout]\nsaid\n[value]\n'yes'" },
    ]);
    expect(calls).toMatchObject([{ id: 'call_0', status: 'succeeded' }]);
    expect(pending).toEqual([]);
    expect((await get(calls[0]?.execution_id ?? '')).status).toBe('succeeded');
  });

  test('that waits for its client says so, and the same request gives what came of it', async () => {
    const body = message(['code', PROGRAM], ['shell', { command: 'ls' }]);
    const { answer, execution } = await asked(body, 'k1');
    expect(answer.messages[0]?.content).toMatch(/^program exe_\S+ waits for 1 of your tools; /);
    expect(answer.messages[1]?.content).toMatch(/^error: program_waiting: not run: /);
    expect(answer.calls.map(({ status }) => status)).toEqual(['waiting', null]);
    const [pending] = answer.pending;
    expect(pending).toMatchObject({ tool_name: 'people.ask', arguments: { question: 'a' } });
    expect(running).toHaveLength(1);

    const answered = await reply(pending?.program_id ?? '', [{ id: pending?.id, content: 'yes' }]);
    expect(answered.status, answered.text).toBe(202);
    const again = toolCalls(body, { key: 'k1' });
    expect(await execution.answer(1)).toEqual({ call: 1, result: 'yes' });
    execution.goesOn();
    execution.part('value', "'yes'");
    await execution.finish();
    await (await newest(2)).finish();
    const { messages, calls, pending: left } = await again;
    expect(messages.map(({ content }) => content)).toEqual(["'yes'", '(no output)']);
    expect(calls.map(({ execution_id }) => execution_id)).toEqual([pending?.program_id, expect.any(String)]);
    expect(left).toEqual([]);
    expect(running).toHaveLength(2);
  });

  test('with the id of a program that waited gives what came of that', async () => {
    const { answer, execution } = await asked(message(['code', PROGRAM]));
    const [pending] = answer.pending;
    await reply(pending?.program_id ?? '', [{ id: pending?.id, structured: 7 }]);
    await execution.answer(1);
    execution.goesOn();
    execution.part('value', '7');
    await execution.finish();
    const body = message(['code', { program_id: pending?.program_id, language: null, code: null }]);
    expect((await toolCalls(body)).messages[0]?.content).toBe('7');
    expect(running).toHaveLength(1);
  });

  test.each([
    [{ language: 'python' }, /^error: invalid_request: arguments: expected language and code, or/],
    [{ language: 'ruby', code: 'x' }, /^error: invalid_request: arguments\.language: expected /],
    [{ program_id: `exe_${'a'.repeat(22)}` }, /^error: not_found: no program exe_a+ in this session/],
  ])('that asks for nothing that there is is told what is wrong: %j', async (args, text) => {
    const { messages, calls } = await toolCalls(message(['code', args]));
    expect(messages[0]?.content).toMatch(text);
    expect(calls).toEqual([{ id: 'call_0', execution_id: null, status: null }]);
    expect(running).toHaveLength(0);
  });

  test('needs the scope of its language', async () => {
    const scope = 'tools:shell tools:node sessions:write';
    const python = await toolCalls(message(['code', PROGRAM]), { scope });
    expect(python.messages[0]?.content).toMatch(/^error: insufficient_scope: /);
    const none = await toolCalls(message(['code', PROGRAM]), { scope: 'tools:shell' });
    expect(none.messages[0]?.content).toMatch(/^error: tool_not_found: no tool "code"/);
    expect(running).toHaveLength(0);
  });

  test('is refused to code, and another call of code is answered with its caller', async () => {
    const caller = { type: 'program', caller_id: 'call_p' };
    const output = [
      { type: 'function_call', call_id: 'c1', name: 'code', arguments: PROGRAM, caller },
      { type: 'function_call', call_id: 'c2', name: 'nothing', arguments: '{}', caller: { type: 'direct' } },
    ];
    const { messages } = await toolCalls({ output });
    expect(messages).toEqual([
      {
        type: 'function_call_output',
        call_id: 'c1',
        output: 'error: tool_unavailable: code is not called by programs',
        caller,
      },
      { type: 'function_call_output', call_id: 'c2', output: expect.stringContaining('tool_not_found') },
    ]);
  });
});

test('over MCP `code` says which functions there are, and tells by its id what became of a program', async () => {
  const { messages: lists } = await rpc(
    { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
    { token: await token() },
  );
  const { tools } = z
    .object({ tools: z.array(z.looseObject({ name: z.string(), description: z.string() })) })
    .parse(lists[0]?.result);
  expect(tools.find(({ name }) => name === 'code')?.description).toContain(FUNCTION);
  const { answer, execution } = await asked(message(['code', PROGRAM]));
  const [pending] = answer.pending;
  const args = { session_id: sessionId, program_id: pending?.program_id };
  const coming = rpc(call(2, 'code', args), { token: await token() });
  await reply(pending?.program_id ?? '', [{ id: pending?.id, content: 'yes' }]);
  await execution.answer(1);
  execution.goesOn();
  execution.part('value', "'yes'");
  await execution.finish();
  // It was still waiting, or had ended, when it was asked for.
  await coming;
  const { messages } = await rpc(call(3, 'code', args), { token: await token() });
  expect(messages[0]?.result).toMatchObject({ structuredContent: { status: 'succeeded', pending: [] } });
  expect(running).toHaveLength(1);
});
