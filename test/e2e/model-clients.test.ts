/** An agent's loop with the official clients of the model APIs, their objects passed on as they are, on the real stack. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { type ModelStandIn, startModelStandIn, type Turn } from '../fixtures/model-stand-in.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useSession, useStack } from './stack.ts';

const stack = useStack();
const session = useSession(stack);
let model: ModelStandIn;

/** A name that no model API takes as it is. */
const DOUBLE = {
  name: 'géo srv/double.it',
  description: 'Twice a number.',
  kind: 'code',
  language: 'python',
  function: 'double',
  code: 'def double(number):\n    return {"doubled": 2 * number}',
  input_schema: { type: 'object', properties: { number: { type: 'integer' } }, required: ['number'] },
};

beforeAll(async () => {
  model = await startModelStandIn();
  for (const body of [DOUBLE, ASK]) {
    const registered = await stack().api.request('POST', '/v1/tools', { body });
    expect(registered.status).toBe(201);
  }
});
afterAll(() => model.close());

const doubleIn = (names: readonly string[]) =>
  names.find((name) => /^geo_srv_double_it_[0-9a-f]{10}$/.test(name)) ?? '';

/** All that a turn can hold at once, then a call that follows from it, then the end. */
function turns(broken: string): Turn[] {
  return [
    (names) => ({
      text: 'I look.',
      calls: [
        { name: 'shell', arguments: '{"command":"echo one; echo two > two.txt"}' },
        { name: 'python', arguments: '{"code":"6 * 7"}' },
        { name: doubleIn(names), arguments: '{"number":21}' },
        { name: 'shell', arguments: broken },
        { name: 'shel', arguments: '{"command":"echo never"}' },
        {
          name: 'file',
          arguments: '{"operation":"read","path":"two.txt","encoding":null,"offset":null,"length":null}',
        },
        { name: 'python', arguments: '{"code":"1/0"}' },
      ],
    }),
    () => ({ text: 'Once more.', calls: [{ name: 'shell', arguments: '{"command":"cat two.txt"}' }] }),
    () => ({ text: 'Done.', calls: [] }),
  ];
}

/** What the model reads, whatever the API wraps it in. */
function checkResults(contents: readonly string[]): void {
  expect(contents.slice(0, 3)).toEqual(['one\n', '42', '{"doubled":42}']);
  expect(contents[3]).toMatch(/^error: invalid_(json|request): /);
  expect(contents[4]).toMatch(/^error: tool_not_found: .*python, node, shell, file/);
  expect(contents[5]).toBe('two\n');
  expect(contents[6]).toContain('ZeroDivisionError: division by zero');
  expect(contents[7]).toBe('two\n');
  expect(contents).toHaveLength(8);
}

/** In the words of a client's types: what comes was made for the request, as it is. */
async function tools<Tool>(query: string): Promise<Tool[]> {
  const schema = z.object({ tools: z.array(z.custom<Tool>((tool) => typeof tool === 'object')) });
  return (await stack().api.json(schema, 'GET', `/v1/tools?${query}`)).value.tools;
}

async function answersTo<Message>(message: object): Promise<Message[]> {
  const schema = z.object({ messages: z.array(z.custom<Message>((one) => typeof one === 'object')) });
  const path = `${session().path}/tool_calls`;
  return (await stack().api.json(schema, 'POST', path, { body: message })).value.messages;
}

/** A tool that whoever runs the loop executes. */
const ASK = {
  name: 'people.ask',
  description: 'Asks a person.',
  kind: 'client',
  input_schema: { type: 'object', properties: { question: { type: 'string' } }, required: ['question'] },
};
const PROGRAM = [
  'answers = [tools.people.ask(question=f"How old is {name}?")["years"] for name in ("Ann", "Bob")]',
  'sum(answers)',
].join('\n');

const programTurns = (): Turn[] => [
  () => ({
    text: 'I ask.',
    calls: [
      { name: 'code', arguments: JSON.stringify({ language: 'python', code: PROGRAM }) },
      { name: 'python', arguments: '{"code":"answers"}' },
    ],
  }),
  () => ({ text: 'Done.', calls: [] }),
];

/** The loop of a client that answers what its model's programs ask: each of two calls comes by itself. */
async function answersWithPrograms<Message>(message: object): Promise<Message[]> {
  const schema = z.object({
    messages: z.array(z.custom<Message>((one) => typeof one === 'object')),
    pending: z.array(
      z.object({
        id: z.string(),
        program_id: z.string(),
        tool_name: z.literal('people.ask'),
        arguments: z.object({ question: z.string() }),
      }),
    ),
  });
  const { api } = stack();
  const headers = { 'Idempotency-Key': crypto.randomUUID() };
  for (;;) {
    const path = `${session().path}/tool_calls`;
    const { value } = await api.json(schema, 'POST', path, { body: message, headers });
    if (value.pending.length === 0) return value.messages;
    for (const { id, program_id, arguments: args } of value.pending) {
      const structured = { years: args.question.includes('Ann') ? 30 : 12 };
      const body = { results: [{ id, structured }], detach: true };
      await api.request('POST', `${session().path}/programs/${program_id}/tool_results`, { body });
    }
  }
}

const MAX_TURNS = 8;
/** Long enough for a busy machine, and without tries of its own: what is refused shows. */
const CLIENT = { apiKey: 'none', timeout: PATIENCE_MS, maxRetries: 0 };

/** The loop of a chat until the model is done; gives the results of its calls. */
async function chat(
  given: OpenAI.ChatCompletionTool[],
  answer: (message: OpenAI.ChatCompletionMessage) => Promise<OpenAI.ChatCompletionToolMessageParam[]>,
): Promise<OpenAI.ChatCompletionToolMessageParam[]> {
  const client = new OpenAI({ ...CLIENT, baseURL: `${model.url}/v1` });
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Do it.' }];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const completion = await client.chat.completions.create({ model: 'stand-in', messages, tools: given });
    const message = completion.choices[0]?.message;
    if (message === undefined) throw new Error('the model said nothing');
    messages.push(message);
    const answers = await answer(message);
    if (answers.length === 0) break;
    messages.push(...answers);
  }
  expect(messages.at(-1)?.content).toBe('Done.');
  return messages.filter((message) => message.role === 'tool');
}

describe('OpenAI’s client', () => {
  test.each(['false', 'true'])('carries a task through the chat API, strict %s', async (strict) => {
    model.script(turns('{"command": "echo'));
    const given = await tools<OpenAI.ChatCompletionTool>(`format=openai&strict=${strict}`);
    const results = await chat(given, answersTo);
    checkResults(results.map(({ content }) => (typeof content === 'string' ? content : '')));
  });

  test('carries a task through the responses API', async () => {
    const client = new OpenAI({ ...CLIENT, baseURL: `${model.url}/v1` });
    model.script(turns('{"command": 7'));
    const given = await tools<OpenAI.Responses.Tool>('format=openai-responses&strict=true');
    const input: OpenAI.Responses.ResponseInputItem[] = [{ role: 'user', content: 'Do it.' }];
    const contents: string[] = [];
    let text = '';
    for (let turn = 0; turn < MAX_TURNS && text === ''; turn += 1) {
      const response = await client.responses.create({ model: 'stand-in', input, tools: given });
      text = response.output_text;
      const answers = await answersTo<OpenAI.Responses.ResponseInputItem.FunctionCallOutput>(response);
      input.push(...response.output.filter((item) => item.type === 'function_call'), ...answers);
      contents.push(...answers.map(({ output }) => (typeof output === 'string' ? output : '')));
    }
    expect(text).toBe('Done.');
    checkResults(contents);
  });

  test('carries a task through whose program asks the client', async () => {
    model.script(programTurns());
    const given = await tools<OpenAI.ChatCompletionTool>('format=openai&strict=true');
    const results = await chat(given, answersWithPrograms);
    expect(results.map(({ content }) => content)).toEqual(['42', '[30, 12]']);
  });

  test('is refused by the stand-in as by the API when a result is missing', async () => {
    const client = new OpenAI({ ...CLIENT, baseURL: `${model.url}/v1` });
    model.script(turns('{}'));
    const given = await tools<OpenAI.ChatCompletionTool>('format=openai');
    const first = await client.chat.completions.create({
      model: 'stand-in',
      messages: [{ role: 'user', content: 'Do it.' }],
      tools: given,
    });
    const message = first.choices[0]?.message;
    if (message === undefined) throw new Error('the model said nothing');
    const half: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Do it.' }, message];
    const refused = client.chat.completions.create({ model: 'stand-in', messages: half, tools: given });
    await expect(refused).rejects.toBeInstanceOf(OpenAI.BadRequestError);
  });
});

test('Anthropic’s client carries a task through the messages API', async () => {
  const client = new Anthropic({ ...CLIENT, baseURL: model.url });
  // Its API gives arguments parsed, so that those of a model can be wrong but not broken.
  model.script(turns('{"command":7}'));
  const given = await tools<Anthropic.Tool>('format=anthropic');
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'Do it.' }];
  const results: Anthropic.ToolResultBlockParam[] = [];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const message = await client.messages.create({
      model: 'stand-in',
      max_tokens: 1_000,
      messages,
      tools: given,
    });
    messages.push({ role: message.role, content: message.content });
    const answers = await answersTo<{ role: 'user'; content: Anthropic.ToolResultBlockParam[] }>(message);
    if (answers.length === 0) break;
    messages.push(...answers);
    results.push(...answers.flatMap(({ content }) => content));
  }
  expect(messages.at(-1)?.content).toMatchObject([{ type: 'text', text: 'Done.' }]);
  checkResults(results.map(({ content }) => (typeof content === 'string' ? content : '')));
  expect(results.map(({ is_error }) => is_error ?? false)).toEqual([
    false,
    false,
    false,
    true,
    true,
    false,
    true,
    false,
  ]);
});

test('Anthropic’s client carries a task through whose program asks the client', async () => {
  const client = new Anthropic({ ...CLIENT, baseURL: model.url });
  model.script(programTurns());
  const given = await tools<Anthropic.Tool>('format=anthropic');
  expect(given.find(({ name }) => name === 'code')?.description).toContain(
    'tools.people.ask(*, question: str)',
  );
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'Do it.' }];
  const results: Anthropic.ToolResultBlockParam[] = [];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const message = await client.messages.create({
      model: 'stand-in',
      max_tokens: 1_000,
      messages,
      tools: given,
    });
    messages.push({ role: message.role, content: message.content });
    const answers = await answersWithPrograms<{ role: 'user'; content: Anthropic.ToolResultBlockParam[] }>(
      message,
    );
    if (answers.length === 0) break;
    messages.push(...answers);
    results.push(...answers.flatMap(({ content }) => content));
  }
  expect(messages.at(-1)?.content).toMatchObject([{ type: 'text', text: 'Done.' }]);
  expect(results.map(({ content, is_error }) => [content, is_error ?? false])).toEqual([
    ['42', false],
    ['[30, 12]', false],
  ]);
});
