import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ToolNameSchema } from '../../../shared/tool.ts';
import { estimatedTokens } from '../../../worker/rendering/token-budget.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

const TOOL_NAMES = ToolNameSchema.options.join(', ');

let host: HostDouble;
let sessionId: string;
/** Commands in the order in which the host was given them. */
const ran: string[] = [];

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** Commands that say what they do: `out X`, `fail X`, `slow X`; code `1/0` and `figure`; everything else is quiet. */
const script: Script = async (execution) => {
  execution.started();
  const { command, code } = execution.arguments;
  const text = String(command ?? code ?? execution.arguments.path);
  ran.push(text);
  const [verb, ...rest] = text.split(' ');
  if (verb === 'out' || verb === 'slow') await execution.write('stdout', `${rest.join(' ')}\n`);
  if (verb === 'fail') {
    await execution.write('stdout', 'before\n');
    await execution.write('stderr', `${rest.join(' ')}\n`);
    return execution.finish({ status: 'failed', exit_code: 3 });
  }
  if (text === '1/0') {
    const error = {
      name: 'ZeroDivisionError',
      message: 'division by zero',
      traceback:
        'Traceback (most recent call last):\n  File "<cell>", line 1\nZeroDivisionError: division by zero\n',
    };
    return execution.finish({ status: 'failed', exit_code: 1, error });
  }
  if (text === 'figure') {
    execution.part('value', '<Figure>');
    execution.part('result', PIXEL, { mime: 'image/png' });
  }
  return execution.finish();
};

const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
});
afterAll(() => {
  host.close();
});

const AnsweredSchema = z.object({
  format: z.string(),
  messages: z.array(z.record(z.string(), z.unknown())),
  calls: z.array(
    z.object({ id: z.string(), execution_id: z.string().nullable(), status: z.string().nullable() }),
  ),
});

async function post(body: unknown, options: ApiOptions = {}) {
  const path = `/v1/sessions/${sessionId}/tool_calls`;
  return api('POST', path, { token: await alice(), body, ...options });
}

async function answered(body: unknown, options: ApiOptions = {}) {
  const answer = await post(body, options);
  expect(answer.status, answer.text).toBe(200);
  return AnsweredSchema.parse(answer.json);
}

function chatCall(id: string, name: string, args: unknown) {
  return { id, type: 'function', function: { name, arguments: args } };
}

function shell(id: string, command: string) {
  return chatCall(id, 'shell', JSON.stringify({ command }));
}

function chat(...calls: unknown[]) {
  return { role: 'assistant', content: null, refusal: null, annotations: [], tool_calls: calls };
}

async function contentsOf(...calls: unknown[]): Promise<string[]> {
  const { messages } = await answered(chat(...calls));
  return messages.map(({ content }) => String(content));
}

describe('calls of OpenAI’s chat API', () => {
  test('R26: are answered one by one in their order, whatever became of each', async () => {
    const { format, messages, calls } = await answered(
      chat(
        shell('c1', 'slow one'),
        shell('c2', 'out two'),
        chatCall('c3', 'execute_pythn', '{"code": "1"}'),
        chatCall('c4', '', '{}'),
        chatCall('c5', 'bad name\u0000', '{}'),
        chatCall('c6', 'python', '{"code": "1/0"}'),
      ),
    );
    expect(format).toBe('openai');
    expect(messages.map(({ role, tool_call_id }) => [role, tool_call_id])).toEqual(
      ['c1', 'c2', 'c3', 'c4', 'c5', 'c6'].map((id) => ['tool', id]),
    );
    const contents = messages.map(({ content }) => String(content));
    expect(contents.slice(0, 2)).toEqual(['one\n', 'two\n']);
    for (const content of contents.slice(2, 5)) {
      expect(content).toMatch(/^error: tool_not_found: /);
      expect(content).toContain(`you may call: ${TOOL_NAMES}`);
    }
    expect(contents[5]).toContain('status: failed, ZeroDivisionError: division by zero');
    expect(ran).toEqual(['slow one', 'out two', '1/0']);
    expect(calls.map(({ status }) => status)).toEqual(['succeeded', 'succeeded', null, null, null, 'failed']);
  });

  test('R26: of which two share an id are refused before anything runs', async () => {
    const answer = await post(chat(shell('c1', 'out one'), shell('c1', 'out two')));
    expect(problemIn(answer)).toMatchObject({ status: 400, code: 'invalid_request' });
    expect(ran).toEqual([]);
  });

  test.each([
    ['text', '{"command": "out x"}'],
    ['an object', { command: 'out x' }],
    ['text with white space around it', '\n {"command":"out x"} '],
  ])('take arguments as %s', async (_kind, args) => {
    expect(await contentsOf(chatCall('c', 'shell', args))).toEqual(['x\n']);
  });

  test.each([
    ['empty text', ''],
    ['white space', '  '],
    ['null', null],
    ['the text null', 'null'],
    ['an empty object', {}],
  ])('take %s for no arguments, and say which the tool needs', async (_kind, args) => {
    expect(await contentsOf(chatCall('c', 'shell', args))).toEqual([
      'error: invalid_request: arguments.command: expected string',
    ]);
    expect(ran).toEqual([]);
  });

  test.each([
    [
      'cut off',
      '{"command": "out x',
      /^error: invalid_json: .*line 1, column 19: expected the end of the string/,
    ],
    ['not quoted', '{command: 1}', /^error: invalid_json: .*a key in double quotes/],
    ['with a key twice', '{"command":"a","command":"b"}', /the key "command" once/],
    ['with a number that would be rounded', '{"command": 9007199254740993}', /send larger ones as strings/],
    ['an array', '["ls"]', /must be a JSON object, not an array/],
    ['a text in a text', '"ls"', /must be a JSON object, not a string/],
    ['of the wrong type', '{"command": 7}', /arguments\.command: expected string/],
    ['with a field too many', '{"command":"x","cwd":"/"}', /arguments\.cwd: expected no field of this name/],
  ])('with arguments that are %s are answered with what is wrong', async (_kind, args, expected) => {
    const [content] = await contentsOf(chatCall('c', 'shell', args));
    expect(content).toMatch(expected);
    expect(ran).toEqual([]);
  });

  test('R40: lose the nulls that strict mode puts for what is absent', async () => {
    const args = {
      operation: 'read',
      path: 'a.txt',
      encoding: null,
      offset: null,
      content: null,
      mode: null,
    };
    await answered(chat(chatCall('c', 'file', JSON.stringify(args))));
    const [command] = host.commands.slice(-1);
    expect(JSON.parse(new TextDecoder().decode(command?.payload))).toEqual({
      operation: 'read',
      path: 'a.txt',
    });
  });

  test('that are none give nothing to append', async () => {
    expect((await answered({ role: 'assistant', content: 'Done.' })).messages).toEqual([]);
    expect((await answered(chat())).messages).toEqual([]);
  });

  test.each([
    ['nothing', {}],
    ['a call without an id', chat({ type: 'function', function: { name: 'shell', arguments: '{}' } })],
    ['calls that are no list', { tool_calls: 'shell' }],
    ['too many calls', chat(...Array.from({ length: 65 }, (_, index) => shell(`c${index}`, 'x')))],
    ['a user’s message', { role: 'user', content: 'hello' }],
  ])('must be calls: %s is refused', async (_kind, body) => {
    expect(problemIn(await post(body))).toMatchObject({ status: 400, code: 'invalid_request' });
    expect(ran).toEqual([]);
  });

  test('of another kind than functions are answered, not run', async () => {
    const [content] = await contentsOf({ id: 'c', type: 'custom', custom: { name: 'shell', input: 'ls' } });
    expect(content).toMatch(/^error: tool_not_found/);
    expect(ran).toEqual([]);
  });
});

describe('calls of OpenAI’s responses API', () => {
  test('are answered as items for the next input', async () => {
    const { format, messages } = await answered({
      object: 'response',
      output: [
        { type: 'reasoning', id: 'rs_1', summary: [] },
        { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'shell', arguments: '{"command":"out a"}' },
        { type: 'function_call', id: 'fc_2', call_id: 'c2', name: 'nope', arguments: '{}' },
      ],
    });
    expect(format).toBe('openai-responses');
    expect(messages).toEqual([
      { type: 'function_call_output', call_id: 'c1', output: 'a\n' },
      { type: 'function_call_output', call_id: 'c2', output: expect.stringContaining('tool_not_found') },
    ]);
  });
});

describe('calls of Anthropic’s API', () => {
  const message = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    stop_reason: 'tool_use',
    usage: { input_tokens: 1, output_tokens: 1 },
    content: [
      { type: 'text', text: 'Let me look.' },
      { type: 'tool_use', id: 't1', name: 'shell', input: { command: 'out one' } },
      { type: 'tool_use', id: 't2', name: 'shell', input: { command: 'fail no' } },
      { type: 'tool_use', id: 't3', name: 'ghost', input: {} },
    ],
  };

  test('are answered in one message, failures marked', async () => {
    const { format, messages } = await answered(message);
    expect(format).toBe('anthropic');
    expect(messages).toEqual([
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 't1', content: 'one\n' },
          {
            type: 'tool_result',
            tool_use_id: 't2',
            content: 'status: failed, exit code 3\n[stdout]\nbefore\n[stderr]\nno',
            is_error: true,
          },
          {
            type: 'tool_result',
            tool_use_id: 't3',
            content: expect.stringContaining(`you may call: ${TOOL_NAMES}`),
            is_error: true,
          },
        ],
      },
    ]);
  });

  test('are taken in a field beside the options too', async () => {
    expect((await answered({ message, max_characters: 500, timeout_ms: 1_000 })).messages).toHaveLength(1);
  });

  test('are shown the images of their results', async () => {
    const { messages } = await answered({
      role: 'assistant',
      content: [{ type: 'tool_use', id: 't', name: 'python', input: { code: 'figure' } }],
    });
    expect(messages[0]?.content).toEqual([
      {
        type: 'tool_result',
        tool_use_id: 't',
        content: [
          { type: 'text', text: '[value]\n<Figure>\n[result 1, image/png: 70 bytes]' },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } },
        ],
      },
    ]);
  });
});

describe('the content of a message', () => {
  test('keeps head and tail within its budget, and says where the whole is', async () => {
    const lines = Array.from({ length: 3_000 }, (_, index) => `line ${index}`).join(' ');
    const { messages, calls } = await answered({ ...chat(shell('c', `out ${lines}`)), max_characters: 600 });
    const content = String(messages[0]?.content);
    expect(content.length).toBeLessThanOrEqual(600);
    expect(content).toMatch(/^line 0 line 1 /);
    expect(content).toContain('line 2999');
    const path = /GET (\/v1\/sessions\/\S+\/executions\/\S+?)\]/.exec(content)?.[1] ?? '';
    expect(path.endsWith(`${calls[0]?.execution_id}`)).toBe(true);
    const whole = ExecutionSchema.parse((await api('GET', path, { token: await alice() })).json);
    expect(whole.stdout).toBe(`${lines}\n`);
  });

  test.each([
    ['words', 'some words of a text'],
    ['letters of another script', '漢字仮名交じり文'],
    ['signs that are several tokens each', '😀🎉🧪'],
    ['a mixture', 'abc 漢字 😀'],
  ])('keeps within a budget of tokens, of %s', async (_kind, text) => {
    const long = Array.from({ length: 4_000 }, (_, index) => `${text} ${index}`).join(' ');
    const maxTokens = 1_000;
    const { messages } = await answered({ ...chat(shell('c', `out ${long}`)), max_tokens: maxTokens });
    const content = String(messages[0]?.content);
    expect(estimatedTokens(content)).toBeLessThanOrEqual(maxTokens);
    expect(estimatedTokens(content)).toBeGreaterThan(maxTokens / 2);
    expect(content.startsWith(`${text} 0 `)).toBe(true);
    expect(content).toContain('3999');
    expect(content).toMatch(/\[the whole: execution exe_/);
  });

  test('is as long as its tokens allow where only those are given', async () => {
    const { messages } = await answered({
      ...chat(shell('c', `out ${'word '.repeat(8_000)}`)),
      max_tokens: 20_000,
    });
    expect(String(messages[0]?.content).trim()).toBe('word '.repeat(8_000).trim());
  });
});

describe('rights and repetition', () => {
  test('a call without the scope of its tool is answered, not run', async () => {
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'alice', scope: 'tools:python' } });
    const { messages } = await answered(
      chat(shell('c1', 'out x'), chatCall('c2', 'python', '{"code":"1"}')),
      {
        token,
      },
    );
    expect(messages[0]?.content).toMatch(/^error: insufficient_scope: the token lacks tools:shell/);
    expect(messages[1]?.content).toBe('(no output)');
    expect(ran).toEqual(['1']);
  });

  test('a session of somebody else is not found, whether or not a call could run', async () => {
    const token = await tokenOf({ claims: { tenant: 'acme', sub: 'mallory' } });
    for (const call of [shell('c', 'out x'), chatCall('c', 'ghost', '{}')]) {
      expect(problemIn(await post(chat(call), { token }))).toMatchObject({ status: 404, code: 'not_found' });
    }
    expect(ran).toEqual([]);
  });

  test('a message that comes again with its key gives the same results and runs nothing', async () => {
    const options = { headers: { 'Idempotency-Key': 'turn-7' } };
    const body = chat(shell('c1', 'out one'), shell('c2', 'out two'));
    const first = await answered(body, options);
    expect(await answered(body, options)).toEqual(first);
    expect(ran).toEqual(['out one', 'out two']);
    const other = await post(chat(shell('c1', 'out three')), options);
    expect(problemIn(other)).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    expect(ran).toEqual(['out one', 'out two']);
  });
});
