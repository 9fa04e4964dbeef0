import { env } from 'cloudflare:workers';
import type { CallToolResult, Client } from '@modelcontextprotocol/client';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { INLINE_BYTES } from '../../../shared/limits.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { connectClient, type Era } from './clients.ts';

const TOOL_NAMES = [
  'answer_program',
  'code',
  'call_tool',
  'create_session',
  'decide_approval',
  'list_approvals',
  'delete_session',
  'search_tools',
  'execute_code',
  'run_command',
  'file',
  'run',
].toSorted();

let host: HostDouble;

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const NOT_FINITE = "{'a': nan, 'b': inf, 'c': -0.0, 'd': 1000000000000000000000000000000}";

const Arguments = z.looseObject({ command: z.string().optional(), code: z.string().optional() });

const script: Script = async (execution) => {
  execution.started();
  const { command, code } = Arguments.parse(execution.arguments);
  const text = command ?? code ?? '';
  switch (text) {
    case 'hold':
      await execution.write('stdout', 'begun\n');
      await execution.interrupted;
      return execution.finish({ status: 'interrupted', exit_code: null });
    case '1/0':
      return execution.finish({
        status: 'failed',
        exit_code: 1,
        error: { name: 'ZeroDivisionError', message: 'division by zero', traceback: 'Traceback\n' },
      });
    case 'not finite':
      execution.part('value', NOT_FINITE);
      return execution.finish();
    case 'figure':
      execution.part('value', '<Figure>');
      execution.part('result', PIXEL, { mime: 'image/png' });
      return execution.finish();
    case 'sound':
      execution.part('result', 'UklGRg==', { mime: 'audio/wav' });
      return execution.finish();
    case 'long':
      await execution.write('stdout', 'x'.repeat(2 * INLINE_BYTES));
      return execution.finish();
    case 'many':
      await execution.write('stdout', `${'x'.repeat(99)}\n`.repeat(2_000));
      return execution.finish();
    default:
      await execution.write('stdout', `${text}\n`);
      return execution.finish();
  }
};

beforeAll(async () => {
  host = await connectFakeHost({ script });
  host.protocol = 2;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });

const ExecutionContent = z.looseObject({
  execution_id: z.string(),
  session_id: z.string(),
  status: z.string(),
  stdout: z.string(),
  value: z.string().nullable(),
  truncated: z.boolean(),
  session_ended: z.boolean(),
  error: z.object({ name: z.string(), message: z.string(), traceback: z.string() }).nullable(),
  results: z.array(z.object({ mime: z.string(), characters: z.int() })),
});

async function callTool(
  client: Client,
  name: string,
  args: Record<string, unknown>,
): Promise<CallToolResult> {
  return client.callTool({ name, arguments: args });
}

function textOf({ content }: CallToolResult): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
}

describe.each<Era>(['2025-11-25', '2026-07-28'])('a client of %s', (era) => {
  let client: Client;
  let sessionId: string;

  beforeAll(async () => {
    client = await connectClient(era, await alice());
    const created = await callTool(client, 'create_session', { metadata: { project: 'x' } });
    sessionId = z.object({ session_id: z.string() }).parse(created.structuredContent).session_id;
  });
  afterAll(async () => {
    await client.close();
  });

  test('speaks its version', () => {
    expect(client.getNegotiatedProtocolVersion()).toBe(era);
  });

  test('lists the tools in one order, each with a schema that model APIs take', async () => {
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(TOOL_NAMES);
    for (const { inputSchema } of tools) {
      expect(inputSchema.type).toBe('object');
      for (const word of ['oneOf', 'anyOf', 'allOf']) expect(inputSchema).not.toHaveProperty(word);
    }
    const shell = tools.find(({ name }) => name === 'run_command');
    expect(Object.keys(shell?.inputSchema.properties ?? {})).toEqual([
      'command',
      'session_id',
      'timeout_ms',
      'idempotency_key',
    ]);
    expect(shell?.inputSchema.required).toEqual(['command']);
  });

  test.each([
    ['execute_code', { language: 'javascript', code: 'hello' }, 'node'],
    ['execute_code', { language: 'python', code: 'hello' }, 'python'],
    ['run_command', { command: 'hello' }, 'shell'],
    ['python', { code: 'hello' }, 'python'],
    ['node', { code: 'hello' }, 'node'],
    ['shell', { command: 'hello' }, 'shell'],
  ])('calls %s with %j, which is %s', async (name, args, tool) => {
    const result = await callTool(client, name, { ...args, session_id: sessionId });
    expect(ExecutionContent.parse(result.structuredContent)).toMatchObject({
      status: 'succeeded',
      tool_name: tool,
    });
  });

  test('is told what was wrong with code that it wanted to run', async () => {
    const result = await callTool(client, 'execute_code', { language: 'ruby', code: '1' });
    expect(result.isError).toBe(true);
    expect(textOf(result)).toContain('arguments.language');
  });

  test('gets the output as text and the execution as data', async () => {
    const result = await callTool(client, 'run_command', { command: 'hello', session_id: sessionId });
    expect(result.isError).toBe(false);
    expect(result.content).toEqual([{ type: 'text', text: 'hello\n' }]);
    const content = ExecutionContent.parse(result.structuredContent);
    expect(content).toMatchObject({ session_id: sessionId, status: 'succeeded', session_ended: false });
    const path = `/v1/sessions/${sessionId}/executions/${content.execution_id}/receipt`;
    expect((await api('GET', path, { token: await alice() })).status).toBe(200);
  });

  test('R65: is told of a failed program as an error of the tool, not of the protocol', async () => {
    const result = await callTool(client, 'execute_code', {
      language: 'python',
      code: '1/0',
      session_id: sessionId,
    });
    expect(result.isError).toBe(true);
    expect(textOf(result)).toContain('status: failed, ZeroDivisionError: division by zero');
    expect(ExecutionContent.parse(result.structuredContent).error).toMatchObject({
      name: 'ZeroDivisionError',
      message: 'division by zero',
    });
  });

  test('R42: gets numbers that JSON does not have as text', async () => {
    const result = await callTool(client, 'execute_code', {
      language: 'python',
      code: 'not finite',
      session_id: sessionId,
    });
    expect(textOf(result)).toBe(NOT_FINITE);
    expect(ExecutionContent.parse(result.structuredContent).value).toBe(NOT_FINITE);
  });

  test('is shown images', async () => {
    const result = await callTool(client, 'execute_code', {
      language: 'python',
      code: 'figure',
      session_id: sessionId,
    });
    expect(result.content).toEqual([
      { type: 'text', text: '[value]\n<Figure>\n[result 1, image/png: 70 bytes]' },
      { type: 'image', mimeType: 'image/png', data: PIXEL },
    ]);
    expect(ExecutionContent.parse(result.structuredContent).results).toEqual([
      { mime: 'image/png', characters: PIXEL.length },
    ]);
  });

  test('is given sounds', async () => {
    const result = await callTool(client, 'execute_code', {
      language: 'python',
      code: 'sound',
      session_id: sessionId,
    });
    expect(result.content).toEqual([
      { type: 'text', text: '[result 1, audio/wav: 4 bytes]' },
      { type: 'audio', mimeType: 'audio/wav', data: 'UklGRg==' },
    ]);
  });

  test('gets long output cut, and where the whole is', async () => {
    const result = await callTool(client, 'run_command', { command: 'many', session_id: sessionId });
    expect(textOf(result).length).toBeLessThanOrEqual(16_000);
    expect(textOf(result)).toContain(`GET /v1/sessions/${sessionId}/executions/`);
    const content = ExecutionContent.parse(result.structuredContent);
    expect(content.truncated).toBe(true);
    expect(content.stdout.length).toBeLessThanOrEqual(16_000);
  });

  test('may leave the session out: the call then has one that ends with it', async () => {
    const result = await callTool(client, 'run_command', { command: 'alone' });
    expect(textOf(result)).toBe('alone\n');
    const content = ExecutionContent.parse(result.structuredContent);
    expect(content).toMatchObject({ session_ended: true });
    expect(content.session_id).not.toBe(sessionId);
    const path = `/v1/sessions/${content.session_id}`;
    await host.until(() => !host.sessions.has(content.session_id));
    expect((await api('GET', path, { token: await alice() })).status).toBe(404);
  });

  test('gets what the list says that a tool gives, also of more output than a result holds', async () => {
    await client.listTools();
    const result = await callTool(client, 'run_command', { command: 'long', session_id: sessionId });
    const content = ExecutionContent.parse(result.structuredContent);
    expect(content).toMatchObject({ status: 'succeeded', truncated: true });
    const path = `/v1/sessions/${sessionId}/executions/${content.execution_id}`;
    const kept = ExecutionSchema.parse((await api('GET', path, { token: await alice() })).json);
    expect(kept.output?.stdout).toBeDefined();
  });

  test('gets the first result again for a call with the same key', async () => {
    const args = { command: 'once', session_id: sessionId, idempotency_key: `k-${era}` };
    const first = ExecutionContent.parse((await callTool(client, 'run_command', args)).structuredContent);
    const again = ExecutionContent.parse((await callTool(client, 'run_command', args)).structuredContent);
    expect(again.execution_id).toBe(first.execution_id);
    const alone = { command: 'once alone', idempotency_key: `a-${era}` };
    const one = ExecutionContent.parse((await callTool(client, 'run_command', alone)).structuredContent);
    const two = ExecutionContent.parse((await callTool(client, 'run_command', alone)).structuredContent);
    expect(two.execution_id).toBe(one.execution_id);
  });

  test.each([
    ['without an argument', { session_id: 'S' }, /arguments\.command: expected string/],
    [
      'with an unknown argument',
      { command: 'x', cwd: '/' },
      /arguments\.cwd: expected no field of this name/,
    ],
    ['with a wrong option', { command: 'x', timeout_ms: 0 }, /arguments\.timeout_ms: expected at least 1/],
    ['in a session that is not there', { command: 'x', session_id: 'ses_no' }, /^error: not_found/],
  ])('is told what is wrong with a call %s', async (_what, args, expected) => {
    const own = Object.entries(args).map(([name, value]) => [name, value === 'S' ? sessionId : value]);
    const result = await callTool(client, 'run_command', Object.fromEntries(own));
    expect(result.isError).toBe(true);
    expect(textOf(result)).toMatch(expected);
  });

  test('learns the names of its tools when it calls another', async () => {
    await expect(callTool(client, 'execute_pythn', {})).rejects.toThrow(
      `no tool "execute_pythn"; you may call: ${TOOL_NAMES.join(', ')}`,
    );
  });

  test('hears of the output of a running program', async () => {
    const heard: { progress: number; message: string | undefined }[] = [];
    const running = client.callTool(
      { name: 'run_command', arguments: { command: 'hold', session_id: sessionId } },
      {
        onprogress: ({ progress, message }) => {
          heard.push({ progress, message });
          void stub().interrupt({ tenant: 'acme', subject: 'alice' }, null);
        },
      },
    );
    const stub = () => env.SESSION.getByName(`acme:${sessionId}`);
    const result = await running;
    expect(heard).toEqual([{ progress: 6, message: 'begun\n' }]);
    expect(result.isError).toBe(true);
    expect(textOf(result)).toBe('status: interrupted, stopped before its end\n[stdout]\nbegun');
  });

  test('R32: stops a call that it gives up, and the session lives on', async () => {
    const abort = new AbortController();
    const held = host.session(sessionId).executions.size;
    const running = client.callTool(
      { name: 'run_command', arguments: { command: 'hold', session_id: sessionId } },
      { signal: abort.signal },
    );
    running.catch(() => undefined);
    await host.until(() => host.session(sessionId).executions.size > held);
    const [execution] = [...host.session(sessionId).executions.values()].slice(-1);
    abort.abort();
    await expect(running).rejects.toThrow();
    await execution?.interrupted;
    expect(textOf(await callTool(client, 'run_command', { command: 'after', session_id: sessionId }))).toBe(
      'after\n',
    );
  });

  test('R32: ends the session of a call of its own that it gives up', async () => {
    const abort = new AbortController();
    const before = new Set(host.sessions.keys());
    const running = client.callTool(
      { name: 'run_command', arguments: { command: 'hold' } },
      { signal: abort.signal },
    );
    running.catch(() => undefined);
    const own = () => [...host.sessions.values()].find((session) => !before.has(session.sessionId));
    await host.until(() => (own()?.executions.size ?? 0) > 0);
    abort.abort();
    await expect(running).rejects.toThrow();
    await host.until(() => own() === undefined);
  });

  test('deletes its session, and the second time it is not found', async () => {
    const result = await callTool(client, 'delete_session', { session_id: sessionId });
    expect(result.isError).not.toBe(true);
    const again = await callTool(client, 'delete_session', { session_id: sessionId });
    expect(again.isError).toBe(true);
    expect(textOf(again)).toMatch(/^error: not_found/);
  });
});
