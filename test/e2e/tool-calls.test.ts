/** An agent's loop on the real stack: a model's messages go in as they are, and what comes out is appended. */

import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ToolNameSchema } from '../../shared/tool.ts';
import { STUCK_MS } from '../patience.ts';
import { useSession, useStack } from './stack.ts';
import { timed } from './until.ts';

const stack = useStack();
const session = useSession(stack);

const ChatAnswerSchema = z.object({
  format: z.literal('openai'),
  messages: z.array(z.object({ role: z.literal('tool'), tool_call_id: z.string(), content: z.string() })),
});
const AnthropicAnswerSchema = z.object({
  format: z.literal('anthropic'),
  messages: z.array(
    z.object({
      role: z.literal('user'),
      content: z.array(
        z.object({
          type: z.literal('tool_result'),
          tool_use_id: z.string(),
          content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]),
          is_error: z.boolean().optional(),
        }),
      ),
    }),
  ),
});

function chatCall(id: string, name: string, args: string) {
  return { id, type: 'function', function: { name, arguments: args } };
}

async function chat(...calls: unknown[]) {
  const body = { role: 'assistant', content: null, tool_calls: calls };
  const answer = await stack().api.json(ChatAnswerSchema, 'POST', `${session().path}/tool_calls`, { body });
  return answer.value.messages;
}

describe('messages of OpenAI’s chat API', () => {
  test('R26: every call is answered in its order, and what went wrong is in its answer', async () => {
    const { value: messages, elapsedMs } = await timed(
      chat(
        chatCall('c1', 'shell', '{"command":"sleep 1; echo one"}'),
        chatCall('c2', 'shell', '{"command":"echo two"}'),
        chatCall('c3', 'execute_pythn', '{"code":"1"}'),
        chatCall('c4', '', '{}'),
        chatCall('c5', 'bad name\u0000', '{}'),
        chatCall('c6', 'python', '{"code":"1/0"}'),
      ),
    );
    expect(messages.map(({ tool_call_id }) => tool_call_id)).toEqual(['c1', 'c2', 'c3', 'c4', 'c5', 'c6']);
    const contents = messages.map(({ content }) => content);
    expect(contents.slice(0, 2)).toEqual(['one\n', 'two\n']);
    for (const content of contents.slice(2, 5)) expect(content).toContain(ToolNameSchema.options.join(', '));
    expect(contents[5]).toMatch(/^status: failed, ZeroDivisionError: division by zero\n\[traceback\]\n/);
    expect(elapsedMs).toBeLessThan(STUCK_MS);
    const { executions } = await session().executions();
    expect(executions.map(({ status, tool_name }) => [tool_name, status])).toEqual([
      ['python', 'failed'],
      ['shell', 'succeeded'],
      ['shell', 'succeeded'],
    ]);
  });

  test('carry a task through: write, run red, mend, run green', async () => {
    const write = (content: string) =>
      chatCall(
        'w',
        'file',
        JSON.stringify({ operation: 'write', path: 'add.py', content, encoding: null, mode: null }),
      );
    const run = chatCall(
      'r',
      'shell',
      JSON.stringify({ command: 'python3 -B -c "import add; assert add.add(2, 3) == 5"' }),
    );
    const [written, red] = await chat(write('def add(a, b):\n    return a - b\n'), run);
    expect(written?.content).toContain('"created":true');
    expect(red?.content).toMatch(/^status: failed, exit code 1\n\[stderr\]\nTraceback[\s\S]*AssertionError/);
    const [, green] = await chat(write('def add(a, b):\n    return a + b\n'), run);
    expect(green?.content).toBe('(no output)');
  });

  test('keep both ends of long output, and a way to the whole', async () => {
    const [answer] = await chat(chatCall('c', 'shell', '{"command":"seq 1 20000"}'));
    const content = answer?.content ?? '';
    expect(content.length).toBeLessThanOrEqual(16_000);
    expect(content).toMatch(/^1\n2\n3\n/);
    expect(content).toContain('\n20000\n');
    const path = /GET (\S+)\]$/.exec(content)?.[1] ?? '';
    const whole = await stack().api.json(z.object({ stdout_bytes: z.int() }), 'GET', path);
    expect(whole.value.stdout_bytes).toBe(108_894);
  });
});

test('a message of Anthropic’s API is answered by one, with failures marked and figures shown', async () => {
  const figure = [
    'import base64',
    'class Figure:',
    '  def _repr_png_(self):',
    "    return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')",
    'Figure()',
  ].join('\n');
  const body = {
    role: 'assistant',
    stop_reason: 'tool_use',
    content: [
      { type: 'text', text: 'I look.' },
      { type: 'tool_use', id: 't1', name: 'python', input: { code: figure } },
      { type: 'tool_use', id: 't2', name: 'shell', input: { command: 'exit 4' } },
    ],
  };
  const { value } = await stack().api.json(AnthropicAnswerSchema, 'POST', `${session().path}/tool_calls`, {
    body,
  });
  const [first, second] = value.messages[0]?.content ?? [];
  expect(value.messages).toHaveLength(1);
  expect(first?.content).toMatchObject([
    { type: 'text' },
    { type: 'image', source: { media_type: 'image/png' } },
  ]);
  expect(second).toEqual({
    type: 'tool_result',
    tool_use_id: 't2',
    content: 'status: failed, exit code 4',
    is_error: true,
  });
});
