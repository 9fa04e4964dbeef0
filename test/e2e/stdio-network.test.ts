/** The way out of an MCP server in a sandbox of its source's own, and how long one is left alone that ends each time. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { run } from '../../host-agent/process/run-command.ts';
import { type Execution, ExecutionSchema } from '../../shared/execution.ts';
import { type ToolSource, ToolSourceSchema } from '../../shared/tool-source.ts';
import { startUpstream, type Upstream } from '../fixtures/upstream.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const TIMEOUT_MS = 360_000;

/** One tool, `fetch`: what an address answers, or why it does not. With `die` it asks for an address and ends. */
const SERVER = `
import json, sys, time, urllib.error, urllib.request

def fetch(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except urllib.error.HTTPError as error:
        return f'{error.code} {error.reason}'
    except urllib.error.URLError as error:
        return f'{error.reason}'

if sys.argv[1:2] == ['die']:
    fetch(f'{sys.argv[2]}/attempt/{round(time.time() * 1000)}')
    print('nothing works here', file=sys.stderr)
    sys.exit(3)

SCHEMA = {'type': 'object', 'properties': {'url': {'type': 'string'}}, 'required': ['url']}
for line in sys.stdin:
    message = json.loads(line)
    if 'id' not in message:
        continue
    params = message.get('params') or {}
    answers = {
        'initialize': lambda: {
            'protocolVersion': params['protocolVersion'],
            'capabilities': {'tools': {}},
            'serverInfo': {'name': 'fetcher', 'version': '1'},
        },
        'tools/list': lambda: {'tools': [{'name': 'fetch', 'inputSchema': SCHEMA}]},
        'tools/call': lambda: {'content': [{'type': 'text', 'text': fetch(params['arguments']['url'])}]},
        'ping': lambda: {},
    }
    answer = answers.get(message['method'])
    said = {'error': {'code': -32601, 'message': 'unknown'}} if answer is None else {'result': answer()}
    print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], **said}), flush=True)
`;

let upstream: Upstream;
let archive: Buffer<ArrayBuffer>;

beforeAll(async () => {
  upstream = await startUpstream();
  const dir = await mkdtemp(join(tmpdir(), 'sandgate-server-'));
  await writeFile(join(dir, 'server.py'), SERVER);
  expect(await run('tar', ['cf', 'server.tar', 'server.py'], { cwd: dir })).toMatchObject({ exitCode: 0 });
  archive = Buffer.from(await readFile(join(dir, 'server.tar')));
  await rm(dir, { recursive: true });
});
afterAll(() => upstream[Symbol.asyncDispose]());

const stack = useStack(() => ({
  SANDGATE_EGRESS_ALLOW: `files.test:${upstream.port},other.test:${upstream.port}`,
  SANDGATE_EGRESS_HOSTS: 'files.test=127.0.0.1,other.test=127.0.0.1',
}));

const address = (host: string) => `http://${host}:${upstream.port}`;

/** Its files come behind it, so what it says of the first start is that they are missing. */
async function source(name: string, args: string[]): Promise<void> {
  const body = {
    name,
    kind: 'mcp_stdio',
    image: 'python',
    command: 'python3',
    args: ['/workspace/server.py', ...args],
    network: { allow: [`files.test:${upstream.port}`] },
  };
  const created = await stack().api.request('POST', '/v1/tool_sources', { body });
  expect(created.status, created.text).toBe(201);
  const put = await fetch(`${stack().api.url}/v1/tool_sources/${name}/archive`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${stack().api.token}`, 'content-type': 'application/x-tar' },
    body: archive,
  });
  expect(put.status, await put.text()).toBe(200);
}

async function read(name: string): Promise<ToolSource> {
  return (await stack().api.json(ToolSourceSchema, 'GET', `/v1/tool_sources/${name}`)).value;
}

async function refresh(name: string): Promise<void> {
  await stack().api.request('POST', `/v1/tool_sources/${name}/refresh`);
}

async function fetched(url: string): Promise<Execution> {
  const body = { tool_name: 'web.fetch', arguments: { url }, timeout_ms: 60_000 };
  return (await stack().api.json(ExecutionSchema, 'POST', '/v1/execute', { body })).value;
}

test(
  'a server reaches what its source allows and nothing else, and one that ends each time is left alone longer and longer',
  async () => {
    await source('web', []);
    await until('the server is ready', TIMEOUT_MS, async () => {
      await refresh('web');
      return (await read('web')).status === 'ready' ? true : undefined;
    });
    const count = upstream.requests.length;
    expect(await fetched(`${address('files.test')}/`)).toMatchObject({
      status: 'succeeded',
      stdout: 'hello',
    });
    expect(upstream.requests).toHaveLength(count + 1);
    // Its host would let it out there; its source does not.
    const denied = await fetched(`${address('other.test')}/`);
    expect(denied.stdout).toBe(`403 other.test:${upstream.port} is not in network.allow of this session`);
    expect(upstream.requests).toHaveLength(count + 1);

    await source('dying', ['die', address('files.test')]);
    const attempts = () =>
      upstream.requests.flatMap(({ url }) => {
        const at = /^\/attempt\/(\d+)$/.exec(url)?.[1];
        return at === undefined ? [] : [Number(at)];
      });
    await until('it was started five times', TIMEOUT_MS, async () => {
      await refresh('dying');
      return attempts().length >= 5 ? true : undefined;
    });
    // The first may be the last one of another definition, whose files had just come.
    const [, second = 0, third = 0, fourth = 0, fifth = 0] = attempts();
    expect(third - second).toBeGreaterThanOrEqual(1_000);
    expect(fourth - third).toBeGreaterThanOrEqual(2_000);
    expect(fifth - fourth).toBeGreaterThanOrEqual(4_000);
    const failed = await until('it has failed', TIMEOUT_MS, async () => {
      const seen = await read('dying');
      return seen.status === 'failed' ? seen : undefined;
    });
    expect(failed.last_error?.message).toMatch(/exit code 3.*nothing works here/s);
    expect((await read('web')).status).toBe('ready');
    expect(await fetched(`${address('files.test')}/`)).toMatchObject({ stdout: 'hello' });
    for (const name of ['web', 'dying']) {
      expect((await stack().api.request('DELETE', `/v1/tool_sources/${name}`)).status).toBe(204);
    }
  },
  TIMEOUT_MS,
);
