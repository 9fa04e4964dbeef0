/** `npm start` as a person uses it: what it prints works, what it writes is right, and what it started ends with it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { type DevFile, DevFileSchema } from '../../scripts/development/dev-file.ts';
import { ExecutionSchema } from '../../shared/execution.ts';
import { PATIENCE_MS } from '../patience.ts';
import { ApiClient } from './client.ts';
import { leftoversOf, processesOf } from './leftovers.ts';
import { timed, until } from './until.ts';

const SECOND_START_MS = 10_000;
const START_MS = 120_000;
const script = new URL('../../scripts/start.ts', import.meta.url).pathname;
const nothing = { processes: [], mounts: [], cgroups: [] };
const started: { child: ChildProcess; stateDir: string }[] = [];

interface Started {
  child: ChildProcess;
  stateDir: string;
  output: () => string;
  exited: Promise<number | null>;
}

function startIn(stateDir: string, port: string): Started {
  const child = spawn(process.execPath, [script], {
    env: { ...process.env, SANDGATE_STATE_DIR: stateDir, PORT: port },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.push({ child, stateDir });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output += chunk.toString('utf8');
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
  return { child, stateDir, output: () => output, exited };
}

async function start(port = '0'): Promise<Started> {
  return startIn(await mkdtemp(join(tmpdir(), 'sandgate-start-')), port);
}

async function devFileOf({ stateDir, output }: Started): Promise<DevFile> {
  const path = join(stateDir, 'dev.json');
  return until(`dev.json is written: ${output()}`, START_MS, async () =>
    output().includes('Ctrl-C') ? DevFileSchema.parse(JSON.parse(await readFile(path, 'utf8'))) : undefined,
  );
}

async function expectNothingLeft(stateDir: string): Promise<void> {
  await until('nothing is left', PATIENCE_MS, async () => {
    const left = await leftoversOf(stateDir);
    return JSON.stringify(left) === JSON.stringify(nothing) ? true : undefined;
  }).catch(async () => expect(await leftoversOf(stateDir)).toEqual(nothing));
}

afterEach(async () => {
  for (const { child, stateDir } of started.splice(0)) {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      await new Promise((resolve) => child.once('exit', resolve));
    }
    await rm(stateDir, { recursive: true, force: true });
  }
});

test('prints a URL, a token and a call that works, and Ctrl-C leaves nothing behind', async () => {
  const first = await start();
  const file = await devFileOf(first);
  expect((await stat(join(first.stateDir, 'dev.json'))).mode & 0o777).toBe(0o600);
  const output = first.output();
  expect(output).toContain(file.url);
  const body: unknown = JSON.parse(/-d '([^']+)'/.exec(output)?.[1] ?? 'null');
  const printed = new ApiClient(file.url, /authorization: Bearer ([^']+)'/.exec(output)?.[1] ?? '');
  const { value: result } = await printed.json(ExecutionSchema, 'POST', '/v1/execute', { body });
  expect(result.value).toBe('80779853376');
  const api = new ApiClient(file.url, file.token);
  const session = await api.open();
  const call = session.sh('sleep 300', { timeoutMs: 300_000 }).catch((error: unknown) => error);
  await until('the call runs', PATIENCE_MS, async () =>
    (await session.describe()).executions.running === 1 ? true : undefined,
  );
  const running = await leftoversOf(first.stateDir);
  expect(running.processes.length).toBeGreaterThan(3);
  expect(running.cgroups.length).toBeGreaterThan(0);

  first.child.kill('SIGINT');
  expect(await first.exited).toBe(0);
  await call;
  expect(await leftoversOf(first.stateDir)).toEqual(nothing);
  expect(existsSync(join(first.stateDir, 'dev.json'))).toBe(false);

  const second = startIn(first.stateDir, '0');
  const { value: fileAgain, elapsedMs } = await timed(devFileOf(second));
  expect(elapsedMs).toBeLessThan(SECOND_START_MS);
  expect(fileAgain.host_id).toBe(file.host_id);
  const again = new ApiClient(fileAgain.url, fileAgain.token);
  expect((await (await again.open()).sh('echo back')).stdout).toBe('back\n');
  second.child.kill('SIGTERM');
  expect(await second.exited).toBe(0);
  expect(await leftoversOf(first.stateDir)).toEqual(nothing);
});

test('leaves nothing behind where Ctrl-C comes as its host agent has just died', async () => {
  const stack = await start();
  const file = await devFileOf(stack);
  const session = await new ApiClient(file.url, file.token).open();
  await session.detach('shell', { command: 'sleep 300' });
  const agent = (await processesOf(stack.stateDir)).find(({ command }) =>
    command.includes('host-agent/main.ts'),
  );
  if (agent === undefined) throw new Error('the host agent does not run');
  process.kill(agent.pid, 'SIGKILL');
  stack.child.kill('SIGINT');
  expect(await stack.exited).toBe(0);
  expect(await leftoversOf(stack.stateDir)).toEqual(nothing);
});

test('leaves nothing behind when it is killed itself', async () => {
  const stack = await start();
  const file = await devFileOf(stack);
  const session = await new ApiClient(file.url, file.token).open();
  await session.detach('shell', { command: 'sleep 300' });
  stack.child.kill('SIGKILL');
  await stack.exited;
  await expectNothingLeft(stack.stateDir);
});

test('says in one line that the port is in use', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const refused = await start(String(port));
    expect(await refused.exited).toBe(1);
    const last = refused.output().trim().split('\n').at(-1) ?? '';
    expect(last).toMatch(new RegExp(`^sandgate: .*${port}.*PORT`));
    expect(refused.output()).not.toContain('    at ');
    expect(await leftoversOf(refused.stateDir)).toEqual(nothing);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
});

test('says in one line that it runs already', async () => {
  const first = await start();
  await devFileOf(first);
  const second = startIn(first.stateDir, '0');
  expect(await second.exited).toBe(1);
  expect(second.output().trim().split('\n').at(-1)).toMatch(/^sandgate: already running/);
  const file = await devFileOf(first);
  expect((await new ApiClient(file.url, file.token).request('GET', '/v1/tools')).status).toBe(200);
});
