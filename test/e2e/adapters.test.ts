/** Clients of other servers on the real stack: what they send moves by its URL, and what runs is ours. */

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { freshNode } from '../../worker/adapters/fresh-process.ts';
import { tar } from '../fixtures/tar.ts';
import { startUpstream, type Upstream } from '../fixtures/upstream.ts';
import { useStack } from './stack.ts';

let upstream: Upstream;
beforeAll(async () => {
  upstream = await startUpstream();
});
afterAll(() => upstream[Symbol.asyncDispose]());

const stack = useStack(() => ({
  SANDGATE_EGRESS_ALLOW: `files.test:${upstream.port},*.example.com`,
  SANDGATE_EGRESS_HOSTS: 'files.test=127.0.0.1',
}));

async function answerOf(response: Response): Promise<{ status: number; json: unknown }> {
  return { status: response.status, json: await response.json() };
}

/** A client of XAgent's server with a node of its own. */
async function xagent(options?: object) {
  const { url, token } = stack().api;
  const authorization = `Basic ${btoa(`sandgate:${token}`)}`;
  let cookie = '';
  const post = (path: string, body?: object) => {
    const headers = new Headers({ authorization, cookie });
    if (body === undefined || body instanceof FormData) {
      return fetch(`${url}/xagent${path}`, { method: 'POST', headers, body: body ?? null });
    }
    headers.set('content-type', 'application/json');
    return fetch(`${url}/xagent${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  };
  const node = await post('/get_cookie', options);
  expect(node.status).toBe(200);
  cookie = node.headers.get('set-cookie')?.split(';')[0] ?? '';
  const execute = async (tool_name: string, args: object) =>
    answerOf(await post('/execute_tool', { tool_name, arguments: args }));
  return { post, execute };
}

test('XAgent: a shell goes on beside other calls, is given more, asked for its end, and ended', async () => {
  const { post, execute } = await xagent();
  const shell = async (args: object) => execute('shell_command_executor', args);
  const ShellSchema = z.object({ data: z.looseObject({ shell_id: z.int(), display: z.string() }) });
  const until = 'until test -e go; do sleep 0.1; done';
  const first = await shell({ command: `echo begun; ${until}; echo gone on`, run_async: true });
  const { data } = ShellSchema.parse(first.json);
  expect(data).toMatchObject({ display: '\nstdout:\nbegun\n', status: expect.stringContaining('runs on') });
  expect((await shell({ command: 'touch go' })).json).toMatchObject({ data: { ReturnCode: 0 } });
  expect((await shell({ shell_id: data.shell_id })).json).toEqual({
    type: 'simple',
    data: { ReturnCode: 0, display: '\nstdout:\nbegun\ngone on\n' },
  });
  const second = ShellSchema.parse((await shell({ command: 'n=6; echo set', run_async: true })).json).data;
  const { shell_id } = second;
  const more = await shell({ command: 'echo $((n * 7)); echo no >&2', shell_id, run_async: true });
  expect(more.json).toMatchObject({ data: { display: expect.stringContaining('42\n\nstderr:\nno\n') } });
  const last = await shell({ command: 'exit 3', shell_id });
  expect(last).toMatchObject({ status: 500, json: { detail: { ReturnCode: 3 } } });
  const third = ShellSchema.parse(
    (await shell({ command: 'echo up; sleep 1000', run_async: true })).json,
  ).data;
  expect((await shell({ shell_id: third.shell_id, kill: true })).json).toMatchObject({
    data: { ReturnCode: 'SIGKILL' },
  });
  await post('/close_session');
});

test('XAgent: pages are read where the network of the session reaches, and what is not there says why', async () => {
  const { execute } = await xagent();
  const page = { url: 'http://pages.example.com/', goals_to_browse: 'anything' };
  const closed = await execute('WebEnv_browse_website', page);
  expect(closed).toMatchObject({ status: 500, json: { detail: expect.stringContaining('has no network') } });
  const { post, execute: executeOpen } = await xagent({ network: { allow: ['other.example.com'] } });
  const elsewhere = await executeOpen('WebEnv_browse_website', page);
  expect(elsewhere).toMatchObject({
    status: 500,
    json: { detail: expect.stringContaining('pages.example.com:80 is not in network.allow of this session') },
  });
  const searched = await executeOpen('WebEnv_search_and_browse', { search_query: 'x', goals_to_browse: 'y' });
  expect(searched).toMatchObject({ status: 500, json: { detail: expect.stringContaining('bing_search') } });
  const html = '<title>A page</title><body><h1>Head</h1><p>One <b>two</b><a href="/next">the next</a> end';
  await executeOpen('FileSystemEnv_write_to_file', { filepath: 'site/index.html', content: html });
  await executeOpen('shell_command_executor', {
    command: 'cd site && echo up && python3 -m http.server 8000 --bind 127.0.0.1',
    run_async: true,
  });
  const listens = 'until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done';
  await executeOpen('shell_command_executor', { command: listens });
  const shown = await executeOpen('WebEnv_browse_website', { url: 'http://127.0.0.1:8000/' });
  expect(shown).toEqual({
    status: 200,
    json: 'A page\nHead\nOne twothe next end\n\nLinks:\nthe next (http://127.0.0.1:8000/next)\n',
  });
  await post('/close_session');
});

test('XAgent: a search by a tool of the tenant gives the pages that the network of the session reaches', async () => {
  const page = `http://files.test:${upstream.port}/`;
  const code = `
def bing_search(query, region="nowhere"):
    places = ["${page}", "http://denied.example.com/", "ftp://files.test/", "${page}late"]
    return [{"name": f"{query} {at}", "snippet": region, "url": url} for at, url in enumerate(places)]`;
  const tool = { description: 'Searches', kind: 'code', language: 'python', code };
  expect((await stack().api.request('PUT', '/v1/tools/bing_search', { body: tool })).status).toBe(201);
  try {
    const { post, execute } = await xagent({ network: { allow: [`files.test:${upstream.port}`] } });
    const found = await execute('WebEnv_search_and_browse', {
      search_query: 'greetings',
      goals_to_browse: 'any',
      region: 'en-US',
      num_results: 3,
    });
    expect(found).toEqual({
      status: 200,
      json: [
        { name: 'greetings 0', snippet: 'en-US', page: 'hello\n' },
        {
          name: 'greetings 1',
          snippet: 'en-US',
          page: expect.stringContaining('denied.example.com:80 is not in network.allow of this session'),
        },
        { name: 'greetings 2', snippet: 'en-US', page: 'the address is not one of http or https' },
      ],
    });
    await post('/close_session');
  } finally {
    await stack().api.request('DELETE', '/v1/tools/bing_search');
  }
});

test('XAgent: a node, its tools, its files, and the workspace at the end', async () => {
  const { post, execute } = await xagent();

  const form = new FormData();
  form.append('file', new File(['3\n4\n'], 'numbers.txt'));
  expect((await post('/upload_file', form)).status).toBe(200);
  const code = 'total = sum(int(line) for line in open("numbers.txt"))\nprint(total)';
  expect(await execute('PythonNotebook_execute_cell', { code })).toEqual({ status: 200, json: '7\n' });
  expect((await execute('PythonNotebook_execute_cell', { code: 'total + 1' })).json).toBe('8');
  const failed = await execute('PythonNotebook_execute_cell', { code: '1/0' });
  expect(failed).toMatchObject({
    status: 500,
    json: { detail: expect.stringContaining('ZeroDivisionError') },
  });
  expect(
    (await execute('shell_command_executor', { command: 'mkdir -p out && cp numbers.txt out/' })).json,
  ).toEqual({
    type: 'simple',
    data: { ReturnCode: 0, display: '' },
  });
  const written = await execute('FileSystemEnv_write_to_file', {
    filepath: 'reports/end.md',
    content: '# Done\nseven',
  });
  expect(written).toEqual({ status: 200, json: '    1: # Done\n    2: seven\n' });

  const source = `@toolwrapper()
async def triple(number: int):
    """Three times a number.

    :param integer number: the number
    """
    import asyncio
    await asyncio.sleep(0)
    return {"tripled": 3 * number}`;
  expect((await post('/register_new_tool', { tool_name: 'triple', code: source })).status).toBe(200);
  expect((await execute('triple', { number: 14 })).json).toEqual({ type: 'simple', data: { tripled: 42 } });

  const structure = await answerOf(await post('/get_workspace_structure'));
  expect(JSON.stringify(structure.json)).toContain('"end.md"');
  const zip = Buffer.from(await (await post('/download_workspace')).arrayBuffer());
  expect(listZip(zip)).toEqual(expect.arrayContaining(['numbers.txt', 'out/numbers.txt', 'reports/end.md']));
  expect((await answerOf(await post('/close_session'))).json).toMatch(/^Close session: ses_/);
});

/** Read by a reader that others wrote, which checks every sum. */
function listZip(bytes: Buffer): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'sandgate-zip-'));
  try {
    const file = join(folder, 'workspace.zip');
    writeFileSync(file, bytes);
    const program = `import json, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
print(json.dumps(archive.namelist()))`;
    const names = execFileSync('python3', ['-c', program, file], { encoding: 'utf8' });
    return z.array(z.string()).parse(JSON.parse(names));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('ms-enclave: a program in JavaScript is a process of its own', () => {
  const run = (source: string) => {
    const cell = `(async () => { ${freshNode(source)} })().catch((error) => { console.error(error.message); process.exitCode = 9; })`;
    return spawnSync(process.execPath, ['-e', cell], { encoding: 'utf8' });
  };
  expect(run('const kept = 41; console.log(kept + 1, typeof require)').stdout).toBe('42 function\n');
  expect(run('process.exit(3)')).toMatchObject({ status: 9, stderr: 'the program ended with 3\n' });
});

test('ms-enclave: a sandbox whose executors leave nothing behind but files', async () => {
  const { url, token } = stack().api;
  const send = async (method: string, path: string, body?: object | Uint8Array<ArrayBuffer>) => {
    const isBytes = body instanceof Uint8Array;
    const headers = {
      'x-api-key': token,
      'content-type': isBytes ? 'application/x-tar' : 'application/json',
    };
    const sent = isBytes ? body : body === undefined ? null : JSON.stringify(body);
    return answerOf(await fetch(`${url}/ms-enclave${path}`, { method, headers, body: sent }));
  };
  const tools = [
    'python_executor',
    'shell_executor',
    'file_operation',
    'notebook_executor',
    'multi_code_executor',
  ];
  const made = await send('POST', '/sandbox/create?sandbox_type=docker', {
    image: 'python:3.11-slim',
    tools_config: tools,
    memory_limit: '4g',
  });
  const { sandbox_id } = z.object({ sandbox_id: z.string() }).parse(made.json);
  const run = async (tool_name: string, parameters: object) => {
    const { json } = await send('POST', '/sandbox/tool/execute', { sandbox_id, tool_name, parameters });
    const result = z
      .object({ status: z.string(), output: z.unknown(), error: z.string().nullable() })
      .parse(json);
    return [result.status, result.output, result.error];
  };

  const script = 'if __name__ == "__main__":\n    kept = 1\n    print("as a script", "名")\n';
  expect(await run('python_executor', { code: script })).toEqual(['success', 'as a script 名\n', null]);
  const [status, output, error] = await run('python_executor', { code: 'print(1)\nkept' });
  expect([status, output]).toEqual(['error', '1\n']);
  expect(error).toMatch(/NameError: name 'kept' is not defined/);
  const [late] = await run('python_executor', { code: 'import time; time.sleep(60)', timeout: 1 });
  expect(late).toBe('timeout');
  await run('notebook_executor', { code: 'kept = 41' });
  expect(await run('notebook_executor', { code: 'kept + 1' })).toEqual(['success', '42', null]);
  expect(await run('shell_executor', { command: 'cd /tmp; export KEPT=1; exit 3' })).toEqual([
    'error',
    '',
    'status: failed, exit code 3',
  ]);
  expect(await run('shell_executor', { command: 'pwd; echo "[$KEPT]"' })).toEqual([
    'success',
    '/workspace\n[]\n',
    null,
  ]);
  expect(await run('shell_executor', { command: ['printf', '%s|', "it's", '$HOME'] })).toEqual([
    'success',
    "it's|$HOME|",
    null,
  ]);
  const bash = { language: 'bash', code: 'echo $((1 + 1))' };
  expect(await run('multi_code_executor', bash)).toEqual(['success', '2\n', null]);
  const beside = { language: 'python', code: 'print(open("data.txt").read(), __name__)' };
  expect(await run('multi_code_executor', { ...beside, files: { 'in/data.txt': "it's\n名" } })).toEqual([
    'success',
    "it's\n名 __main__\n",
    null,
  ]);

  const archive = new Uint8Array(tar([{ name: 'in/data.txt', content: 'packed' }]));
  expect((await send('POST', `/sandbox/${sandbox_id}/archive?target_dir=/sandbox`, archive)).json).toEqual({
    ok: true,
  });
  const file = (operation: string, file_path: string, more: object = {}) =>
    run('file_operation', { operation, file_path, ...more });
  expect(await file('read', '/sandbox/in/data.txt')).toEqual(['success', 'packed', null]);
  await file('write', '/sandbox/new/deep.txt', { content: 'x' });
  expect(await file('exists', 'new/deep.txt')).toEqual(['success', 'exists', null]);
  const theirPath = 'open("/sandbox/made.txt", "w").write(open("/sandbox/in/data.txt").read())';
  expect((await run('python_executor', { code: theirPath }))[0]).toBe('success');
  expect(await run('shell_executor', { command: 'cat /sandbox/made.txt made.txt' })).toEqual([
    'success',
    'packedpacked',
    null,
  ]);
  expect(await file('delete', 'new')).toEqual(['success', 'Successfully deleted: new', null]);
  expect(await file('exists', 'new/deep.txt')).toEqual(['success', 'does not exist', null]);
  expect((await send('DELETE', `/sandbox/${sandbox_id}`)).status).toBe(200);
});
