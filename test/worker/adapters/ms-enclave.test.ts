/** What ms-enclave's `HttpSandboxManager` sends, and what it reads in the answers. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { type AdapterRequest, detailIn, send } from './adapter-client.ts';

let host: HostDouble;
const ran: { tool: string | null; text: string; timeoutMs: number }[] = [];

const script: Script = async (execution) => {
  execution.started();
  const { tool, limits } = execution.claims;
  const { command, code, operation, path } = execution.arguments;
  const text = z.string().parse(command ?? code ?? [operation, path].join(' '));
  ran.push({ tool, text, timeoutMs: limits.timeout_ms });
  if (text.includes('fail')) {
    await execution.write('stderr', 'it failed\n');
    return execution.finish({ status: 'failed', exit_code: 3 });
  }
  if (text.includes('endless')) return execution.finish({ status: 'timeout' });
  if (text === 'read notes.txt') {
    execution.part('structured', JSON.stringify({ content: 'notes', truncated: false }));
    return execution.finish();
  }
  if (text.startsWith('stat') || text.startsWith('delete')) {
    const error = { name: 'FileNotFound', message: 'no such file or directory', traceback: '' };
    return execution.finish({ status: 'failed', exit_code: 1, error });
  }
  await execution.write('stdout', '42\n');
  if (tool === 'python' && code === '6 * 7') execution.part('value', '42');
  return execution.finish();
};

const ALICE = { tenant: 'acme', sub: 'alice' };
/** Everything that its model writes when a client names an image and tools only. */
const DOCKER_CONFIG = {
  timeout: 30,
  tools_config: { python_executor: {}, shell_executor: {}, file_operation: {} },
  working_dir: '/sandbox',
  env_vars: { GREETING: 'hello' },
  resource_limits: {},
  image: 'python:3.11-slim',
  volumes: {},
  ports: {},
  network: 'bridge',
  extra_hosts: {},
  memory_limit: '4g',
  cpu_limit: 2.0,
  network_enabled: true,
  privileged: false,
  remove_on_exit: true,
  pull_progress: false,
  pull_progress_interval: 3.0,
  docker_executor_workers: 8,
};

async function call(method: string, path: string, { headers = {}, ...rest }: AdapterRequest = {}) {
  const key = { 'X-API-Key': await tokenOf({ claims: ALICE }) };
  return send(method, `/ms-enclave${path}`, {
    ...rest,
    headers: { 'User-Agent': 'Python/3.11 aiohttp/3.9.5', ...key, ...headers },
  });
}

const CreatedSchema = z.object({ sandbox_id: z.string() });

async function create(config: object = DOCKER_CONFIG): Promise<string> {
  const answer = await call('POST', '/sandbox/create?sandbox_type=docker', { json: config });
  expect(answer.status, answer.text).toBe(200);
  return CreatedSchema.parse(answer.json).sandbox_id;
}

const ResultSchema = z.object({
  status: z.enum(['success', 'error', 'timeout', 'cancelled']),
  execution_time: z.number().nullable(),
  timestamp: z.iso.datetime(),
  tool_name: z.string(),
  output: z.unknown(),
  metadata: z.record(z.string(), z.unknown()),
  error: z.string().nullable(),
});

let sandboxId: string;

async function execute(tool_name: string, parameters: object) {
  const json = { sandbox_id: sandboxId, tool_name, parameters, timeout: null };
  const answer = await call('POST', '/sandbox/tool/execute', { json });
  expect(answer.status, answer.text).toBe(200);
  return ResultSchema.parse(answer.json);
}

beforeAll(async () => {
  host = await connectFakeHost({ script });
  sandboxId = await create({
    ...DOCKER_CONFIG,
    tools_config: [
      'python_executor',
      'shell_executor',
      'file_operation',
      'notebook_executor',
      'multi_code_executor',
    ],
  });
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
});
afterAll(() => host.close());

describe('a sandbox', () => {
  test('is made as it was configured, shown, listed, and ended', async () => {
    const id = await create();
    const info = await call('GET', `/sandbox/${id}`);
    expect(info.json).toMatchObject({
      id,
      status: 'running',
      type: 'docker',
      config: { image: 'python' },
      available_tools: { python_executor: {}, shell_executor: {}, file_operation: {} },
    });
    const token = await tokenOf({ claims: ALICE });
    const session = await api('GET', `/v1/sessions/${id}`, { token });
    expect(session.json).toMatchObject({ environment: { GREETING: 'hello' }, idle_timeout_s: 3_600 });
    const running = z
      .array(z.object({ id: z.string() }))
      .parse((await call('GET', '/sandboxes?status=running')).json);
    expect(running.map((one) => one.id)).toContain(id);
    expect((await call('GET', '/sandboxes?status=stopped')).json).toEqual([]);
    expect((await call('GET', '/stats')).json).toMatchObject({
      total_sandboxes: running.length,
      pool_enabled: false,
    });
    expect((await call('GET', '/health')).json).toMatchObject({
      healthy: true,
      active_sandboxes: running.length,
    });
    expect((await call('POST', `/sandbox/${id}/stop`)).json).toEqual({
      message: 'Sandbox stopped successfully',
    });
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/stop'],
      ['GET', '/tools'],
    ] as const) {
      const answer = await call(method, `/sandbox/${id}${path}`);
      expect(answer.status).toBe(404);
      expect(detailIn(answer)).toEqual(expect.any(String));
    }
    const deleted = await call('DELETE', `/sandbox/${await create()}`);
    expect(deleted.json).toEqual({ message: 'Sandbox deleted successfully' });
  });

  test.each([
    ['folders of the host', { volumes: { '/data': { bind: '/sandbox/data', mode: 'rw' } } }, /^volumes: /],
    ['ports', { ports: { '8080/tcp': 8080 } }, /^ports: /],
    ['privileges', { privileged: true }, /^privileged: /],
    ['an image that no host has', { image: 'registry.example/team/sandbox-fusion:1' }, /^image_not_found: /],
    ['a name that no variable has', { env_vars: { 'a b': '1' } }, /env/],
  ])('with %s is refused by a reason', async (_kind, more, reason) => {
    const answer = await call('POST', '/sandbox/create?sandbox_type=docker', {
      json: { ...DOCKER_CONFIG, ...more },
    });
    expect(answer.status).toBe(400);
    expect(detailIn(answer)).toMatch(reason);
  });

  test('has the size that was wished for, and ours where nobody wished', async () => {
    const token = await tokenOf({ claims: ALICE });
    const sizeOf = async (config: object) =>
      z
        .object({ resource_limits: z.object({ memory_bytes: z.int(), cpus: z.number() }) })
        .parse((await api('GET', `/v1/sessions/${await create(config)}`, { token })).json).resource_limits;
    expect(await sizeOf(DOCKER_CONFIG)).toEqual(await sizeOf({ tools_config: [] }));
    expect(await sizeOf({ ...DOCKER_CONFIG, memory_limit: '256m', cpu_limit: 0.5 })).toMatchObject({
      memory_bytes: 256 * 1024 * 1024,
      cpus: 0.5,
    });
  });

  test('is its owner’s alone, and needs a token', async () => {
    const headers = { 'X-API-Key': await tokenOf({ claims: { tenant: 'acme', sub: 'mallory' } }) };
    expect((await call('GET', `/sandbox/${sandboxId}`, { headers })).status).toBe(404);
    const json = { sandbox_id: sandboxId, tool_name: 'shell_executor', parameters: { command: 'ls' } };
    expect((await call('POST', '/sandbox/tool/execute', { json, headers })).status).toBe(404);
    expect((await call('GET', '/sandboxes', { headers })).json).toEqual([]);
    expect((await send('GET', '/ms-enclave/health', {})).status).toBe(401);
    expect((await call('GET', '/health', { headers: { 'X-API-Key': 'wrong' } })).status).toBe(401);
    expect(ran).toEqual([]);
  });
});

describe('tools', () => {
  test('are those of the configuration that the token may call', async () => {
    const id = await create();
    const tools = await call('GET', `/sandbox/${id}/tools`);
    expect(Object.keys(z.record(z.string(), z.unknown()).parse(tools.json))).toEqual([
      'python_executor',
      'shell_executor',
      'file_operation',
    ]);
    expect(tools.json).toMatchObject({
      python_executor: {
        type: 'function',
        function: { name: 'python_executor', parameters: { type: 'object', required: ['code'] } },
      },
    });
    const headers = {
      'X-API-Key': await tokenOf({ claims: { ...ALICE, scope: 'sessions:read tools:shell' } }),
    };
    const fewer = await call('GET', `/sandbox/${id}/tools`, { headers });
    expect(Object.keys(z.record(z.string(), z.unknown()).parse(fewer.json))).toEqual(['shell_executor']);
    const python = { sandbox_id: id, tool_name: 'python_executor', parameters: { code: '1' } };
    expect((await call('POST', '/sandbox/tool/execute', { json: python, headers })).status).toBe(403);
    const notebook = { sandbox_id: id, tool_name: 'notebook_executor', parameters: { code: '1' } };
    const absent = await call('POST', '/sandbox/tool/execute', { json: notebook });
    expect([absent.status, detailIn(absent)]).toEqual([404, 'Tool notebook_executor is not available']);
    expect(ran).toEqual([]);
  });

  test('run in a process of their own, or in the kernel, for as long as they were given', async () => {
    expect(await execute('python_executor', { code: 'print(42)' })).toMatchObject({
      status: 'success',
      tool_name: 'python_executor',
      output: '42\n',
      error: null,
    });
    expect(await execute('notebook_executor', { code: '6 * 7', timeout: 5 })).toMatchObject({
      output: '42\n42',
    });
    expect(await execute('shell_executor', { command: 'echo 42' })).toMatchObject({ output: '42\n' });
    await execute('shell_executor', { command: ['echo', "it's"] });
    await execute('multi_code_executor', { language: 'nodejs', code: 'console.log(42)', run_timeout: 7 });
    expect(ran.map(({ tool, timeoutMs }) => [tool, timeoutMs])).toEqual([
      ['python', 30_000],
      ['python', 5_000],
      ['shell', 30_000],
      ['shell', 30_000],
      ['node', 7_000],
    ]);
    expect(ran[0]?.text).toContain('subprocess.run');
    expect(ran[1]?.text).toBe('6 * 7');
    expect(ran[2]?.text).toBe('(\necho 42\n)');
    expect(ran[3]?.text).toBe("(\n'echo' 'it'\\''s'\n)");
  });

  test('say what went wrong in the result', async () => {
    expect(await execute('shell_executor', { command: 'fail' })).toMatchObject({
      status: 'error',
      output: '',
      error: 'it failed\n',
    });
    expect(await execute('shell_executor', { command: 'endless' })).toMatchObject({ status: 'timeout' });
    expect(await execute('python_executor', { code: ' ' })).toMatchObject({
      status: 'error',
      error: 'No code provided',
    });
    const cobol = await execute('multi_code_executor', { language: 'cobol', code: 'x' });
    expect(cobol).toMatchObject({
      status: 'error',
      error: expect.stringContaining('Unsupported language: cobol'),
    });
    const json = { sandbox_id: sandboxId, tool_name: 'shell_executor', parameters: {} };
    const wrong = await call('POST', '/sandbox/tool/execute', { json });
    expect([wrong.status, detailIn(wrong)]).toMatchObject([
      422,
      [{ loc: ['body', 'parameters', 'command'] }],
    ]);
  });

  test('of files take the paths of their sandboxes', async () => {
    const file = (operation: string, file_path: string, more: object = {}) =>
      execute('file_operation', { operation, file_path, ...more });
    await file('write', '/sandbox/a/b.txt', { content: 'x' });
    expect(await file('read', '/sandbox/notes.txt')).toMatchObject({ output: 'notes' });
    expect(await file('exists', '/tmp/none')).toMatchObject({ status: 'success', output: 'does not exist' });
    expect(await file('delete', 'none')).toMatchObject({ status: 'success' });
    expect(await file('write', 'x')).toMatchObject({
      status: 'error',
      error: 'Content is required for write operation',
    });
    expect(ran.map(({ text }) => text)).toEqual([
      'write a/b.txt',
      'read notes.txt',
      'stat /tmp/none',
      'delete none',
    ]);
  });

  test('that the tenant registered are there by their names', async () => {
    const token = await tokenOf({ claims: ALICE });
    const tool = {
      name: 'double',
      description: 'Double it',
      kind: 'code',
      language: 'python',
      code: 'def double(): pass',
    };
    expect((await api('POST', '/v1/tools', { token, body: tool })).status).toBe(201);
    const id = await create({ tools_config: ['double'] });
    expect((await call('GET', `/sandbox/${id}/tools`)).json).toMatchObject({ double: { type: 'function' } });
    const json = { sandbox_id: id, tool_name: 'double', parameters: {} };
    const answer = await call('POST', '/sandbox/tool/execute', { json });
    expect(ResultSchema.parse(answer.json)).toMatchObject({ status: 'success', tool_name: 'double' });
    const stranger = { 'X-API-Key': await tokenOf({ claims: { tenant: 'other', sub: 'bob' } }) };
    const made = await call('POST', '/sandbox/create?sandbox_type=docker', {
      json: { tools_config: ['double'] },
      headers: stranger,
    });
    const other = { ...json, sandbox_id: CreatedSchema.parse(made.json).sandbox_id };
    expect((await call('POST', '/sandbox/tool/execute', { json: other, headers: stranger })).status).toBe(
      404,
    );
  });
});

test('archives are unpacked where they should go', async () => {
  const seen: string[] = [];
  host.transferScript = async (transfer) => {
    const { request } = transfer;
    seen.push(`${request.operation} ${'path' in request ? atob(request.path) : ''}`);
    transfer.head();
    await transfer.until(() => transfer.isWhole);
    transfer.done({ entries: 1 });
  };
  const tar = { raw: new Uint8Array(1024), headers: { 'Content-Type': 'application/x-tar' } };
  const answer = await call('POST', `/sandbox/${sandboxId}/archive?target_dir=%2Fsandbox%2Fdata`, tar);
  expect([answer.status, answer.json]).toEqual([200, { ok: true }]);
  expect(seen).toEqual(['extract data']);
  const nothing = await call('POST', `/sandbox/${sandboxId}/archive?target_dir=x`, {
    headers: { 'Content-Type': 'application/x-tar' },
  });
  expect(nothing.status).toBe(400);
});

describe('a pool', () => {
  test('is empty until it is made, and then runs what it is given', async () => {
    const headers = { 'X-API-Key': await tokenOf({ claims: { tenant: 'acme', sub: 'pooled' } }) };
    const run = () =>
      call('POST', '/pool/execute?tool_name=python_executor&timeout=30', {
        json: { code: 'print(42)' },
        headers,
      });
    const empty = await run();
    expect([empty.status, detailIn(empty)]).toEqual([
      400,
      'Sandbox pool is empty, call initialize_pool first',
    ]);
    const made = await call('POST', '/pool/initialize?pool_size=2&sandbox_type=docker', {
      json: DOCKER_CONFIG,
      headers,
    });
    const { sandbox_ids } = z
      .object({ pool_size: z.literal(2), sandbox_ids: z.array(z.string()) })
      .parse(made.json);
    expect(ResultSchema.parse((await run()).json)).toMatchObject({ status: 'success', output: '42\n' });
    const [first = '', second = ''] = sandbox_ids;
    await call('DELETE', `/sandbox/${first}`, { headers });
    expect(ResultSchema.parse((await run()).json).metadata).toMatchObject({ session_id: second });
    await call('DELETE', `/sandbox/${second}`, { headers });
    expect((await run()).status).toBe(400);
  });
});
