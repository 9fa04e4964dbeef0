/** What XAgent's client sends, byte for byte where it matters, and what it reads in the answers. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { DOUBLE_FACTS } from '../../fixtures/host-double/transfer-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { type AdapterRequest, detailIn, send } from './adapter-client.ts';

let host: HostDouble;
let cookie: string;
const ran: { tool: string | null; text: string }[] = [];
/** Files of the workspace, as the host double keeps them. */
const files = new Map<string, string>();
const PIXEL = 'iVBORw0KGgo=';

const script: Script = async (execution) => {
  execution.started();
  const { tool } = execution.claims;
  const { command, code, operation, path, content } = execution.arguments;
  ran.push({ tool, text: String(command ?? code ?? operation) });
  if (tool === 'file') return fileCall(String(operation), String(path), String(content));
  if (command === 'exit 3') {
    await execution.write('stdout', 'before\n');
    await execution.write('stderr', 'no\n');
    return execution.finish({ status: 'failed', exit_code: 3 });
  }
  if (command === 'sleep 999') return execution.finish({ status: 'timeout' });
  if (code === '1/0') {
    const error = { name: 'ZeroDivisionError', message: 'division by zero', traceback: 'Traceback: 1/0\n' };
    return execution.finish({ status: 'failed', exit_code: 1, error });
  }
  if (code === 'figure') {
    execution.part('value', '<Figure>');
    execution.part('result', PIXEL, { mime: 'image/png' });
    return execution.finish();
  }
  if (tool === 'python' && String(code).includes('def add')) {
    execution.part('value', '{"sum": 3}');
    return execution.finish();
  }
  await execution.write('stdout', `${String(command ?? code)} ran\n`);
  return execution.finish();

  async function fileCall(op: string, at: string, text: string) {
    if (op === 'write') {
      files.set(at, text);
      execution.part(
        'structured',
        JSON.stringify({ operation: op, path: at, size: text.length, created: true }),
      );
      return execution.finish();
    }
    const found = files.get(at);
    if (found === undefined) {
      const error = { name: 'FileNotFound', message: 'no such file or directory', traceback: '' };
      return execution.finish({ status: 'failed', exit_code: 1, error });
    }
    const answer = { operation: op, path: at, encoding: 'utf-8', content: found, truncated: false };
    execution.part('structured', JSON.stringify(answer));
    return execution.finish();
  }
};

const ALICE = { tenant: 'acme', sub: 'alice' };

/** As the library does with `https://sandgate:<token>@host/xagent`. */
async function basic(claims: Record<string, unknown> = ALICE): Promise<{ Authorization: string }> {
  return { Authorization: `Basic ${btoa(`sandgate:${await tokenOf({ claims })}`)}` };
}

async function post(path: string, { headers = {}, ...rest }: AdapterRequest = {}) {
  return send('POST', `/xagent${path}`, {
    ...rest,
    headers: { ...(await basic()), Cookie: cookie, ...headers },
  });
}

beforeAll(async () => {
  host = await connectFakeHost({ script });
  host.transferScript = async (transfer) => {
    const { request } = transfer;
    const path = 'path' in request ? atob(request.path) : '';
    if (request.operation === 'write') {
      transfer.head();
      await transfer.until(() => transfer.isWhole);
      files.set(path, new TextDecoder().decode(transfer.received[0]));
      return transfer.done({ created: true, facts: DOUBLE_FACTS, bytes: transfer.receivedBytes });
    }
    if (request.operation === 'list') return list(path);
    const found = files.get(path);
    if (found === undefined) return transfer.failed('not_found', 'no such file');
    const bytes = new TextEncoder().encode(found);
    transfer.head({ answer: 'whole', facts: { ...DOUBLE_FACTS, size: bytes.length }, length: bytes.length });
    await transfer.data(bytes);
    transfer.done({ bytes: bytes.length });

    async function list(folder: string) {
      const prefix = folder === '.' ? '' : `${folder}/`;
      const below = [...files.keys()]
        .filter((name) => name.startsWith(prefix))
        .map((name) => name.slice(prefix.length));
      const names = [...new Set(below.map((name) => name.split('/')[0] ?? ''))];
      const entries = names.map((name) => ({
        name,
        type: below.includes(name) ? 'file' : 'directory',
        size: 1,
        mode: '0644',
        modified_at: null,
        etag: '"1"',
      }));
      transfer.head();
      await transfer.data(new TextEncoder().encode(JSON.stringify({ entries, next_cursor: null })));
      transfer.done();
    }
  };
  const answer = await send('POST', '/xagent/get_cookie', { headers: await basic() });
  expect(answer).toMatchObject({ status: 200, json: { message: 'add cookie', version: '0.2' } });
  const set = answer.headers.get('Set-Cookie') ?? '';
  expect(set).toMatch(/^node_id=ses_[^;]+; Path=\/xagent; HttpOnly; SameSite=Strict$/);
  cookie = set.split(';')[0] ?? '';
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
});
afterAll(() => host.close());

describe('a node', () => {
  test('is a session that a cookie or a header names, and that the token has to reach', async () => {
    const { status } = await post('/execute_tool', {
      json: { tool_name: 'shell_command_executor', arguments: { command: 'ls' } },
      headers: { Cookie: '', 'Node-Id': cookie.slice('node_id='.length) },
    });
    expect(status).toBe(200);
    for (const headers of [
      { Cookie: '' },
      { Cookie: 'node_id=ses_nothing' },
      await basic({ tenant: 'acme', sub: 'mallory' }),
    ]) {
      const answer = await post('/execute_tool', {
        headers,
        json: { tool_name: 'shell_command_executor', arguments: { command: 'ls' } },
      });
      expect(answer.status).toBe(403);
      expect(detailIn(answer)).toMatch(/^invalid node_id: /);
    }
    expect(ran.length).toBe(1);
  });

  test('needs a token that verifies, in one of the two places', async () => {
    const bad = await send('POST', '/xagent/get_cookie', {
      headers: { Authorization: `Basic ${btoa('a:b.c.d')}` },
    });
    expect(bad.status).toBe(401);
    expect(bad.headers.get('WWW-Authenticate')).toMatch(/^Bearer /);
    expect((await send('POST', '/xagent/get_cookie', {})).status).toBe(401);
    const query = await send('POST', `/xagent/get_cookie?api_key=${await tokenOf({ claims: ALICE })}`, {});
    expect(query.status).toBe(401);
    const bearer = { Authorization: `Bearer ${await tokenOf({ claims: ALICE })}` };
    expect((await post('/get_available_tools', { json: {}, headers: bearer })).status).toBe(200);
    expect(
      (await post('/get_available_tools', { json: {}, headers: { Origin: 'https://evil.test' } })).status,
    ).toBe(403);
  });

  test('has a network where its client asks for one, and then shows the tools that need it', async () => {
    const node = async (json?: object) =>
      send('POST', '/xagent/get_cookie', { headers: await basic(), ...(json === undefined ? {} : { json }) });
    const toolsOf = async (headers: Record<string, string>) => {
      const answer = await post('/get_available_tools', { json: {}, headers });
      return z.object({ available_tools: z.array(z.string()) }).parse(answer.json).available_tools;
    };
    const open = await node({ network: { allow: ['example.com'] } });
    expect(open.status).toBe(200);
    const Cookie = open.headers.get('Set-Cookie')?.split(';')[0] ?? '';
    expect(await toolsOf({ Cookie })).toContain('WebEnv_browse_website');
    expect(await toolsOf({})).not.toContain('WebEnv_browse_website');
    const closed = await post('/execute_tool', {
      json: { tool_name: 'WebEnv_browse_website', arguments: { url: 'https://example.com/' } },
    });
    expect(closed.status).toBe(500);
    expect(detailIn(closed)).toContain('has no network');
    const unfit = await node({ network: { allow: 'example.com' } });
    expect(unfit.status).toBe(422);
    expect(detailIn(unfit)).toMatchObject([{ loc: ['body', 'network', 'allow'] }]);
    await post('/close_session', { headers: { Cookie } });
  });

  test('is found again, closed, and then unknown', async () => {
    const made = await send('POST', '/xagent/get_cookie', { headers: await basic() });
    const own = { Cookie: made.headers.get('Set-Cookie')?.split(';')[0] ?? '' };
    const id = own.Cookie.slice('node_id='.length);
    expect((await post('/reconnect_session', { headers: own })).json).toBe(`Reconnect session: ${id}`);
    expect((await post('/close_session', { headers: own })).json).toBe(`Close session: ${id}`);
    for (const path of ['/reconnect_session', '/close_session', '/release_session']) {
      expect(await post(path, { headers: own })).toMatchObject({
        status: 200,
        json: `invalid node_id: ${id}`,
      });
    }
    const gone = await post('/execute_tool', {
      headers: own,
      json: { tool_name: 'shell_command_executor', arguments: { command: 'ls' } },
    });
    expect(gone.status).toBe(403);
  });
});

const DeclarationSchema = z.object({
  name: z.string(),
  description: z.string(),
  parameters: z.object({
    type: z.literal('object'),
    properties: z.record(z.string(), z.record(z.string(), z.unknown())),
    required: z.array(z.string()),
  }),
});
const AvailableSchema = z.object({
  available_envs: z.array(
    z.object({ name: z.string(), description: z.string(), total_tools: z.int(), tools: z.array(z.string()) }),
  ),
  available_tools: z.array(z.string()),
  tools_json: z.array(DeclarationSchema),
});

/** As the guide of XAgent says to write one. */
const ADD = `from core.register import toolwrapper
from core.exceptions import ToolExecutionError

@toolwrapper()
async def add(first: int, second: int = 0, note: str = "a, (b): c"):
    """Add two numbers,
    and say what came out.

    :param integer first: the first number
        of two
    :param integer? second: the second one
    :param note: a note
    :return string: the sum
    """
    return {"sum": first + second}
`;

describe('tools', () => {
  test('are declared by the names of XAgent’s own, with their environments', async () => {
    const answer = AvailableSchema.parse((await post('/get_available_tools', { json: {} })).json);
    expect(answer.available_tools.slice(0, 5)).toEqual([
      'PythonNotebook_execute_cell',
      'shell_command_executor',
      'FileSystemEnv_read_from_file',
      'FileSystemEnv_write_to_file',
      'FileSystemEnv_print_filesys_struture',
    ]);
    expect(answer.tools_json.map(({ name }) => name)).toEqual(answer.available_tools);
    expect(answer.available_envs.map(({ name, total_tools }) => [name, total_tools])).toEqual([
      ['PythonNotebook', 1],
      ['FileSystemEnv', 3],
    ]);
    const cell = answer.tools_json[0];
    expect(cell?.parameters.required).toEqual(['code']);
    expect(cell?.parameters.properties).toEqual({ code: expect.objectContaining({ type: 'string' }) });
  });

  test('are those that the token may call, and no others', async () => {
    const headers = await basic({ ...ALICE, scope: 'tools:python' });
    const answer = AvailableSchema.parse((await post('/get_available_tools', { json: {}, headers })).json);
    expect(answer.available_tools).toEqual(['PythonNotebook_execute_cell']);
    const bare = await post('/get_json_schema_for_tools', { json: ['shell_command_executor', 'ghost'] });
    expect(bare.json).toMatchObject({
      tools_json: [{ name: 'shell_command_executor' }],
      missing_tools: ['ghost'],
    });
    const named = await post('/get_json_schema_for_tools', {
      headers,
      json: { tool_names: ['shell_command_executor', 'PythonNotebook_execute_cell'] },
    });
    expect(named.json).toMatchObject({ missing_tools: ['shell_command_executor'] });
    const call = { tool_name: 'shell_command_executor', arguments: { command: 'ls' } };
    expect((await post('/execute_tool', { json: call, headers })).status).toBe(404);
    const own = { tool_name: 'shell', arguments: { command: 'ls' } };
    expect((await post('/execute_tool', { json: own, headers })).status).toBe(403);
    expect(ran).toEqual([]);
  });

  test('are registered by their source, found, declared and called', async () => {
    const registered = await post('/register_new_tool', { json: { tool_name: 'add', code: ADD } });
    expect(registered).toMatchObject({
      status: 200,
      json: {
        name: 'add',
        description: 'Add two numbers,\nand say what came out.',
        parameters: {
          type: 'object',
          properties: {
            first: { type: 'integer', description: 'the first number of two' },
            second: { type: 'integer', description: 'the second one' },
            note: { description: 'a note' },
          },
          required: ['first', 'note'],
        },
      },
    });
    const found = await post('/retrieving_tools', { json: { question: 'add two numbers', top_k: 2 } });
    expect(found.json).toMatchObject({ retrieved_tools: ['add'], tools_json: [{ name: 'add' }] });
    const schemas = await post('/get_json_schema_for_tools', { json: { tool_names: ['add', 'ghost'] } });
    expect(schemas.json).toMatchObject({ tools_json: [{ name: 'add' }], missing_tools: ['ghost'] });
    const called = await post('/execute_tool', {
      json: { tool_name: 'add', arguments: { first: 1, second: 2, note: 'x' } },
    });
    expect(called).toMatchObject({ status: 200, json: { type: 'simple', data: { sum: 3 } } });
    expect(ran[0]?.text).not.toContain('from core.');
    const wrong = await post('/execute_tool', {
      json: { tool_name: 'add', arguments: { first: 'one', note: '' } },
    });
    expect(wrong.status).toBe(422);
    expect(detailIn(wrong)).toMatchObject([{ loc: ['arguments', 'first'] }]);
  });

  test.each([
    ['another name', { tool_name: 'subtract', code: ADD }],
    ['a name that is taken', { tool_name: 'add', code: ADD.replace('sum', 'total') }],
    ['a name of ours', { tool_name: 'python', code: ADD.replace('def add', 'def python') }],
  ])('are not registered under %s', async (_kind, json) => {
    const answer = await post('/register_new_tool', { json });
    expect([406, 422]).toContain(answer.status);
  });

  test('need the right to register them', async () => {
    const headers = await basic({ ...ALICE, scope: 'tools:python' });
    const answer = await post('/register_new_tool', { json: { tool_name: 'other', code: ADD }, headers });
    expect(answer.status).toBe(403);
  });

  test('of another tenant are neither found nor called', async () => {
    const bob = await basic({ tenant: 'other', sub: 'bob' });
    const found = await post('/retrieving_tools', { json: { question: 'add two numbers' }, headers: bob });
    expect(found.json).toEqual({ retrieved_tools: [], tools_json: [] });
    const made = await send('POST', '/xagent/get_cookie', { headers: bob });
    const headers = { ...bob, Cookie: made.headers.get('Set-Cookie')?.split(';')[0] ?? '' };
    const call = { tool_name: 'add', arguments: { first: 1, note: '' } };
    expect((await post('/execute_tool', { json: call, headers })).status).toBe(404);
  });
});

describe('a call', () => {
  const execute = (tool_name: string, args: unknown, more: object = {}) =>
    post('/execute_tool', { json: { tool_name, arguments: args, ...more } });

  test('of the shell gives its code and what it shows', async () => {
    expect(await execute('shell_command_executor', { command: 'ls' })).toMatchObject({
      status: 200,
      json: { type: 'simple', data: { ReturnCode: 0, display: '\nstdout:\nls ran\n' } },
    });
    const failed = await execute('shell_command_executor', { command: 'exit 3' });
    expect(failed.status).toBe(500);
    expect(detailIn(failed)).toEqual({ ReturnCode: 3, display: '\nstdout:\nbefore\n\nstderr:\nno\n' });
    expect((await execute('shell_command_executor', { command: 'sleep 999' })).status).toBe(450);
  });

  test('of the notebook gives text, and figures by name', async () => {
    expect((await execute('PythonNotebook_execute_cell', { code: 'x', cell_index: null })).json).toBe(
      'x ran\n',
    );
    expect((await execute('execute_cell', { code: 'x' }, { env_name: 'PythonNotebook' })).json).toBe(
      'x ran\n',
    );
    expect((await execute('PythonNotebook_execute_cell', { code: 'figure' })).json).toEqual({
      type: 'composite',
      data: [
        expect.stringContaining('<Figure>'),
        { type: 'binary', media_type: 'image/png', name: 'result-1.png', data: PIXEL },
      ],
    });
    const failed = await execute('PythonNotebook_execute_cell', { code: '1/0' });
    expect(failed.status).toBe(500);
    expect(detailIn(failed)).toContain('ZeroDivisionError: division by zero');
  });

  test('of a name that there is not, or without arguments, runs nothing', async () => {
    expect((await execute('execute_pythn', {})).status).toBe(404);
    expect((await execute('shell_command_executor', {})).status).toBe(422);
    expect((await execute('shell_command_executor', '{"command')).status).toBe(422);
    expect(
      (await post('/execute_tool', { raw: '{"tool_name', headers: { 'Content-Type': 'application/json' } }))
        .status,
    ).toBe(422);
    expect(ran).toEqual([]);
  });
});

describe('files', () => {
  /** As the library encodes `files={'file': …, 'filename': …}`. */
  function form(name: string, content: string) {
    const boundary = '1d4a9a1c5d4f4a3c8d9d7f3e2b1c0a99';
    const raw = [
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n${content}\r\n`,
      `--${boundary}\r\nContent-Disposition: form-data; name="filename"; filename="filename"\r\n\r\n${name}\r\n`,
      `--${boundary}--\r\n`,
    ].join('');
    return { raw, headers: { 'Content-Type': `multipart/form-data; boundary=${boundary}` } };
  }

  test('go up, come down, and are seen in the structure', async () => {
    expect((await post('/upload_file', form('notes.txt', 'one\ntwo'))).json).toEqual({
      message: 'Upload Success!',
    });
    for (const file_path of ['notes.txt', 'workspace/notes.txt', '/workspace/notes.txt']) {
      const down = await post('/download_file', { json: { file_path } });
      expect([down.status, down.text]).toEqual([200, 'one\ntwo']);
      expect(down.headers.get('Content-Disposition')).toContain('notes.txt');
    }
    files.set('src/deep/a.py', '');
    expect((await post('/get_workspace_structure')).json).toEqual({
      name: 'workspace',
      type: 'directory',
      children: [
        { name: 'notes.txt', type: 'file' },
        {
          name: 'src',
          type: 'directory',
          children: [{ name: 'deep', type: 'directory', children: [{ name: 'a.py', type: 'file' }] }],
        },
      ],
    });
    const tree = { tool_name: 'FileSystemEnv_print_filesys_struture', arguments: { return_root: true } };
    expect((await post('/execute_tool', { json: tree })).json).toBe(
      'Global Root Work Directory: /workspace\n- workspace/\n    - notes.txt\n    - src/\n        - deep/\n            - a.py\n',
    );
  });

  test('that are not there, or no form, are refused', async () => {
    expect((await post('/download_file', { json: { file_path: 'nothing' } })).status).toBe(404);
    const noFile = { raw: '--b--\r\n', headers: { 'Content-Type': 'multipart/form-data; boundary=b' } };
    expect((await post('/upload_file', noFile)).status).toBe(422);
    expect((await post('/upload_file', { json: {} })).status).toBe(422);
  });

  test('are read and written by lines', async () => {
    const execute = (tool_name: string, args: object) =>
      post('/execute_tool', { json: { tool_name: `FileSystemEnv_${tool_name}`, arguments: args } });
    const write = (args: object) => execute('write_to_file', { filepath: 'report.md', ...args });
    expect((await write({ content: 'one\ntwo' })).json).toBe('    1: one\n    2: two\n');
    expect((await write({ content: 'middle', line_number: 2 })).json).toBe(
      '    1: one\n    2: middle\n    3: two\n',
    );
    expect((await write({ content: 'TWO', line_number: 3, overwrite: true })).json).toBe(
      '    1: one\n    2: middle\n    3: TWO\n',
    );
    const read = (line_number: number) =>
      execute('read_from_file', { filepath: '/workspace/report.md', line_number });
    expect((await read(3)).json).toBe('    3: TWO\n');
    expect((await read(-1)).json).toBe('    3: TWO\n');
    expect((await write({ content: 'new', truncating: true })).json).toBe('    1: new\n');
    expect((await execute('read_from_file', { filepath: 'none' })).status).toBe(500);
  });
});

test('what the adapter does is seen by REST as any other call', async () => {
  const id = cookie.slice('node_id='.length);
  const token = await tokenOf({ claims: ALICE });
  const { json } = await api('GET', `/v1/sessions/${id}/executions`, { token });
  const names = z.object({ executions: z.array(z.object({ tool_name: z.string() })) }).parse(json);
  expect(new Set(names.executions.map(({ tool_name }) => tool_name))).toContain('shell');
});
