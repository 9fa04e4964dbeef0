/** MCP servers by others, from the npm registry, each in a sandbox of its source's own. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { run } from '../../host-agent/process/run-command.ts';
import { setUpImages } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { type Execution, ExecutionSchema } from '../../shared/execution.ts';
import { type ToolSource, ToolSourceSchema } from '../../shared/tool-source.ts';
import { processesOf } from './leftovers.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const PACKAGES = ['server-filesystem', 'server-everything'].map(
  (name) => `@modelcontextprotocol/${name}@2026.8.31`,
);
const ToolListSchema = z.object({ tools: z.array(z.object({ name: z.string() })) });
const IMAGE_TIMEOUT_MS = 600_000;
const TIMEOUT_MS = 360_000;

let dir: string | undefined;
let archive: Buffer<ArrayBuffer>;

beforeAll(async () => {
  await setUpImages(['node'], locations(process.env), silentProgress);
  const made = await mkdtemp(join(tmpdir(), 'sandgate-servers-'));
  dir = made;
  const install = ['install', '--prefix', '.', '--no-audit', '--no-fund', '--ignore-scripts', ...PACKAGES];
  expect(await run('npm', install, { cwd: made })).toMatchObject({ exitCode: 0 });
  await mkdir(join(made, 'data'));
  await writeFile(join(made, 'data', 'hello.txt'), 'hello from a file\n');
  const pack = ['cf', 'servers.tar', 'node_modules', 'data'];
  expect(await run('tar', pack, { cwd: made })).toMatchObject({ exitCode: 0 });
  archive = Buffer.from(await readFile(join(made, 'servers.tar')));
}, IMAGE_TIMEOUT_MS);
afterAll(async () => {
  if (dir !== undefined) await rm(dir, { recursive: true, force: true });
});

/** Without a pool: the test kills every sandbox, and one that stands still dies only when it is used. */
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

const SERVERS = {
  files: ['server-filesystem/dist/index.js', '/workspace/data'],
  every: ['server-everything/dist/index.js', 'stdio'],
};

async function read(name: string): Promise<ToolSource> {
  return (await stack().api.json(ToolSourceSchema, 'GET', `/v1/tool_sources/${name}`)).value;
}

async function call(tool_name: string, args: object, timeout_ms = 60_000): Promise<Execution> {
  const body = { tool_name, arguments: args, timeout_ms };
  return (await stack().api.json(ExecutionSchema, 'POST', '/v1/execute', { body })).value;
}

async function settled(name: string, status: ToolSource['status']): Promise<ToolSource> {
  return until(`${name} is ${status}`, TIMEOUT_MS, async () => {
    const source = await read(name);
    return source.status === status ? source : undefined;
  });
}

describe('a server of the registry', { timeout: TIMEOUT_MS }, () => {
  test('says why it does not run, and gives its tools once its files are there', async () => {
    const definitions = Object.entries(SERVERS).map(([name, [script = '', ...args]]) => ({
      name,
      kind: 'mcp_stdio',
      command: 'node',
      args: [`/workspace/node_modules/@modelcontextprotocol/${script}`, ...args],
    }));
    for (const body of definitions) {
      const created = await stack().api.request('POST', '/v1/tool_sources', { body });
      expect(created.status, created.text).toBe(201);
    }
    const without = await settled('files', 'failed');
    expect(without.last_error?.message).toMatch(/^the process ended with exit code 1/);
    for (const name of Object.keys(SERVERS)) {
      const put = await fetch(`${stack().api.url}/v1/tool_sources/${name}/archive`, {
        method: 'PUT',
        headers: {
          authorization: `Bearer ${stack().api.token}`,
          'content-type': 'application/x-tar',
        },
        body: archive,
      });
      expect(put.status, await put.text()).toBe(200);
    }
    for (const { name, ...definition } of definitions) {
      const body = { ...definition, env: { GREETING: 'grüß dich' } };
      const replaced = await stack().api.request('PUT', `/v1/tool_sources/${name}`, { body });
      expect(replaced.status, replaced.text).toBe(200);
      expect(replaced.text).not.toContain('dich');
    }
    const files = await settled('files', 'ready');
    expect(files).toMatchObject({ broken_count: 0, problems: [], archive_bytes: archive.length });
    expect(files.server?.name).toMatch(/filesystem/);
    const every = await settled('every', 'ready');
    expect(every).toMatchObject({ broken_count: 0, problems: [] });
    const { tools } = (await stack().api.json(ToolListSchema, 'GET', '/v1/tools')).value;
    const names = tools.map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['files.read_text_file', 'files.list_directory', 'every.echo']),
    );
    expect((await stack().api.sessions()).sessions).toEqual([]);
  });

  test('is called from its sandbox, many calls at once, and each ends as its server says', async () => {
    const text = await call('files.read_text_file', { path: '/workspace/data/hello.txt' });
    expect(text).toMatchObject({ status: 'succeeded', error: null });
    expect(JSON.stringify([text.stdout, text.structured])).toContain('hello from a file');
    expect(await call('files.read_text_file', { path: '/etc/passwd' })).toMatchObject({
      status: 'failed',
      error: { name: 'ToolError', message: expect.stringContaining('outside allowed directories') },
    });
    const large = 'ä'.repeat(100_000);
    const path = '/workspace/data/large.txt';
    expect(await call('files.write_file', { path, content: large })).toMatchObject({ status: 'succeeded' });
    const back = await call('files.read_text_file', { path });
    expect(back.stdout === large || JSON.stringify(back.structured).includes(large)).toBe(true);
    const echoes = await Promise.all(
      Array.from({ length: 10 }, (_, n) => call('every.echo', { message: `number ${n}` })),
    );
    expect(echoes.map(({ stdout }) => stdout)).toEqual(echoes.map((_, n) => `Echo: number ${n}`));
    expect(
      await call('every.trigger-long-running-operation', { duration: 60, steps: 60 }, 1_000),
    ).toMatchObject({ status: 'timeout' });
    expect(await call('every.echo', { message: 'still' })).toMatchObject({ stdout: 'Echo: still' });
  });

  test('whose sandbox is killed is started again, with its files, by the next calls', async () => {
    for (const { pid, command } of await processesOf(stack().stack.stateDir)) {
      if (command.startsWith('runsc-sandbox')) process.kill(pid, 'SIGKILL');
    }
    const text = await until('it answers again', 120_000, async () => {
      const execution = await call('files.read_text_file', { path: '/workspace/data/hello.txt' });
      return execution.status === 'succeeded' ? execution : undefined;
    });
    expect(JSON.stringify([text.stdout, text.structured])).toContain('hello from a file');
    for (const name of Object.keys(SERVERS)) {
      expect((await stack().api.request('DELETE', `/v1/tool_sources/${name}`)).status).toBe(204);
    }
    const { tools } = (await stack().api.json(ToolListSchema, 'GET', '/v1/tools')).value;
    expect(tools.filter(({ name }) => name.includes('.'))).toEqual([]);
  });
});
