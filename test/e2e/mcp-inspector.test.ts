/** The gateway seen by the official MCP Inspector, as a program of its own beside the real stack. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { PATIENCE_MS } from '../patience.ts';
import { useSession, useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();
const session = useSession(stack);
const INSPECTOR = new URL('../../node_modules/.bin/mcp-inspector', import.meta.url).pathname;
/** So long that a call with it is not over by itself while a test lasts. */
const ENDLESS_MS = 3_600_000;
/** With these a list of tools has more than one page. */
const REGISTERED = Array.from({ length: 130 }, (_, n) => `paged_${String(n).padStart(3, '0')}`);

/** Where the Inspector keeps what it remembers. */
let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'sandgate-inspector-'));
  const tools = REGISTERED.map((name) => {
    const code = `def main():\n    return ${JSON.stringify(name)}`;
    return { name, description: `Gives ${name}`, kind: 'code', language: 'python', code };
  });
  expect((await stack().api.request('POST', '/v1/tools', { body: { tools } })).status).toBe(200);
});
afterAll(() => rm(home, { recursive: true, force: true }));

function inspector(era: string, args: readonly string[], token = stack().api.token) {
  const { url } = stack().api;
  const common = ['--cli', '--transport', 'http', '--server-url', `${url}/mcp`, '--protocol-era', era];
  const header = ['--header', `Authorization: Bearer ${token}`];
  const quiet = [
    '--format',
    'json',
    '--quiet',
    '--stored-auth-only',
    '--connect-timeout',
    String(PATIENCE_MS),
  ];
  const child = spawn(process.execPath, [INSPECTOR, ...common, ...header, ...quiet, ...args], {
    cwd: home,
    env: { PATH: process.env.PATH, HOME: home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const ended = new Promise<{ exitCode: number | null; stdout: string; stderr: string }>((resolve) => {
    child.on('close', (exitCode) => resolve({ exitCode, stdout, stderr }));
  });
  return { child, ended };
}

async function asked<Answer>(
  schema: z.ZodType<Answer>,
  era: string,
  args: readonly string[],
): Promise<Answer> {
  const { exitCode, stdout, stderr } = await inspector(era, args).ended;
  expect(exitCode, stderr).toBe(0);
  return z.object({ result: schema }).parse(JSON.parse(stdout)).result;
}

const ToolsSchema = z.object({
  tools: z.array(z.object({ name: z.string(), inputSchema: z.looseObject({ type: z.literal('object') }) })),
});
const ResultSchema = z.object({
  isError: z.boolean().optional(),
  content: z.array(z.looseObject({ type: z.string(), text: z.string().optional() })),
});

describe.each(['legacy', 'modern'])('the Inspector in its %s era', (era) => {
  const call = (name: string, args: object) =>
    asked(ResultSchema, era, [
      '--method',
      'tools/call',
      '--tool-name',
      name,
      '--tool-args-json',
      JSON.stringify({ session_id: session().id, ...args }),
    ]);

  test('lists the tools of all pages, and finds no fault in their schemas', async () => {
    const { tools } = await asked(ToolsSchema, era, ['--method', 'tools/list', '--strict']);
    const names = tools.map(({ name }) => name);
    for (const name of ['create_session', 'execute_code', 'run_command', 'file', ...REGISTERED])
      expect(names).toContain(name);
    expect(new Set(names).size).toBe(names.length);
  });

  test('calls tools on the first page and on the last', async () => {
    const shown = await call('run_command', { command: 'echo "$((6 * 7))"' });
    expect(shown).toMatchObject({ isError: false, content: [{ type: 'text', text: '42\n' }] });
    const last = REGISTERED.at(-1) ?? '';
    expect(await call(last, {})).toMatchObject({ content: [{ type: 'text', text: JSON.stringify(last) }] });
  });
});

test('a call of the Inspector that is ended is stopped with its program', async () => {
  const args = { command: 'sleep infinity', session_id: session().id, timeout_ms: ENDLESS_MS };
  const { child, ended } = inspector('modern', [
    '--method',
    'tools/call',
    '--tool-name',
    'run_command',
    '--tool-args-json',
    JSON.stringify(args),
  ]);
  const newest = async () => (await session().executions()).executions[0];
  const running = await until('the program runs', PATIENCE_MS, async () => {
    const execution = await newest();
    return execution?.status === 'running' && execution.tool_name === 'shell' ? execution : undefined;
  });
  child.kill('SIGINT');
  await ended;
  await until('the call is stopped', PATIENCE_MS, async () => {
    const execution = await newest();
    return execution?.execution_id === running.execution_id && execution.status === 'interrupted'
      ? true
      : undefined;
  });
});

test('the Inspector is refused without a valid token', async () => {
  const { exitCode, stderr } = await inspector('legacy', ['--method', 'tools/list'], 'none').ended;
  expect(exitCode).not.toBe(0);
  expect(stderr).toContain('auth_required');
});
