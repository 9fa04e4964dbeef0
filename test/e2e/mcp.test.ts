/** MCP on the real stack, by the official clients of both generations. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as FormerClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as FormerTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { PATIENCE_MS } from '../patience.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();
/** So long that a call with it is not over by itself while a test lasts. */
const ENDLESS_MS = 3_600_000;
/** With these a list of tools has more than one page. */
const REGISTERED = Array.from({ length: 130 }, (_, n) => `paged_${String(n).padStart(3, '0')}`);

beforeAll(async () => {
  const tools = REGISTERED.map((name) => {
    const code = `def main():\n    return ${JSON.stringify(name)}`;
    return { name, description: `Gives ${name}`, kind: 'code', language: 'python', code };
  });
  expect((await stack().api.request('POST', '/v1/tools', { body: { tools } })).status).toBe(200);
});

interface CallOptions {
  signal?: AbortSignal;
  timeout?: number;
  onprogress?: (progress: { progress: number; message?: string }) => void;
}

const ResultSchema = z.object({
  isError: z.boolean().optional(),
  content: z.array(
    z.union([
      z.object({ type: z.literal('text'), text: z.string() }),
      z.object({ type: z.literal('image'), mimeType: z.string(), data: z.string() }),
    ]),
  ),
  structuredContent: z.record(z.string(), z.unknown()).optional(),
});
type Result = z.infer<typeof ResultSchema>;
const PageSchema = z.object({
  tools: z.array(z.object({ name: z.string() })),
  nextCursor: z.string().optional(),
});

/** What the tests ask of a client, of whichever generation. */
interface McpClient {
  version: () => string | undefined;
  page: (cursor?: string) => Promise<z.infer<typeof PageSchema>>;
  /** Without a cursor: the whole list of a client that walks the pages itself, and else the first page. */
  list: () => Promise<z.infer<typeof PageSchema>>;
  call: (name: string, args: Record<string, unknown>, options?: CallOptions) => Promise<Result>;
  close: () => Promise<void>;
}

async function connectCurrent(mode: 'default' | 'auto'): Promise<McpClient> {
  const { url, token } = stack().api;
  const client = new Client(
    { name: 'test', version: '1' },
    mode === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {},
  );
  await client.connect(
    new StreamableHTTPClientTransport(new URL('/mcp', url), {
      requestInit: { headers: { Authorization: `Bearer ${token}` } },
    }),
  );
  return {
    version: () => client.getNegotiatedProtocolVersion(),
    page: async (cursor) => {
      const params = cursor === undefined ? {} : { cursor };
      return PageSchema.parse(await client.request({ method: 'tools/list', params }));
    },
    list: async () => PageSchema.parse(await client.listTools()),
    call: async (name, args, options) =>
      ResultSchema.parse(await client.callTool({ name, arguments: args }, options)),
    close: () => client.close(),
  };
}

async function connectFormer(): Promise<McpClient> {
  const { url, token } = stack().api;
  const client = new FormerClient({ name: 'test', version: '1' });
  const transport = new FormerTransport(new URL('/mcp', url), {
    requestInit: { headers: { Authorization: `Bearer ${token}` } },
  });
  await client.connect(transport);
  return {
    version: () => transport.protocolVersion,
    page: async (cursor) => PageSchema.parse(await client.listTools(cursor === undefined ? {} : { cursor })),
    list: async () => PageSchema.parse(await client.listTools()),
    call: async (name, args, options) =>
      ResultSchema.parse(await client.callTool({ name, arguments: args }, undefined, options)),
    close: () => client.close(),
  };
}

const CLIENTS = [
  ['the client of today', '2025-11-25', () => connectCurrent('default')],
  ['the client of today that negotiates', '2026-07-28', () => connectCurrent('auto')],
  ['the client of the first generation', '2025-11-25', connectFormer],
] as const;

function textOf({ content }: Result): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('');
}

describe.each(CLIENTS)('%s', (_name, version, connect) => {
  let client: McpClient;
  let sessionId: string;

  beforeAll(async () => {
    client = await connect();
    const created = await client.call('create_session', {});
    sessionId = z.object({ session_id: z.string() }).parse(created.structuredContent).session_id;
  });
  afterAll(async () => {
    await client.call('delete_session', { session_id: sessionId });
    await client.close();
  });

  const sh = (command: string, options?: CallOptions) =>
    client.call('run_command', { command, session_id: sessionId }, options);
  const py = (code: string) =>
    client.call('execute_code', { language: 'python', code, session_id: sessionId });

  test('speaks its version, lists the tools, and pages through them to the end', async () => {
    expect(client.version()).toBe(version);
    const pages: string[][] = [];
    let cursor: string | undefined;
    do {
      const page = await client.page(cursor);
      pages.push(page.tools.map(({ name }) => name));
      cursor = page.nextCursor;
    } while (cursor !== undefined && pages.length < 10);
    expect(pages.map(({ length }) => length > 0)).toEqual([true, true]);
    expect(pages.flat()).toEqual(
      [
        'answer_program',
        'call_tool',
        'code',
        'create_session',
        'decide_approval',
        'delete_session',
        'execute_code',
        'file',
        'list_approvals',
        'run',
        'run_command',
        'search_tools',
        ...REGISTERED,
      ].toSorted(),
    );
    const listed = await client.list();
    const expected = listed.nextCursor === undefined ? pages.flat() : pages[0];
    expect(listed.tools.map(({ name }) => name)).toEqual(expected);
    const last = REGISTERED.at(-1) ?? '';
    expect(pages.at(-1)).toContain(last);
    expect(textOf(await client.call(last, { session_id: sessionId }))).toBe(JSON.stringify(last));
  });

  test('carries variables and files from call to call', async () => {
    expect(textOf(await py('rows = [3, 1, 2]\nsorted(rows)'))).toBe('[1, 2, 3]');
    expect(textOf(await py('sum(rows)'))).toBe('6');
    const written = await client.call('file', {
      operation: 'write',
      path: 'notes.txt',
      content: 'é\n☃\n',
      session_id: sessionId,
    });
    expect(written.isError).toBe(false);
    expect(textOf(await sh('cat notes.txt'))).toBe('é\n☃\n');
    const read = await client.call('file', { operation: 'read', path: 'notes.txt', session_id: sessionId });
    expect(textOf(read)).toBe('é\n☃\n');
  });

  test('gets a call without a session in one that is gone afterwards', async () => {
    const result = await client.call('run_command', { command: 'echo "$((6 * 7))"; exit 3' });
    expect(result.isError).toBe(true);
    expect(textOf(result)).toBe('status: failed, exit code 3\n[stdout]\n42');
    const { session_id } = z.object({ session_id: z.string() }).parse(result.structuredContent);
    await until('the session is gone', PATIENCE_MS, async () => {
      const { status } = await stack().api.request('GET', `/v1/sessions/${session_id}`);
      return status === 404 ? true : undefined;
    });
  });

  test('R65: gets a failed cell as an error of the tool, with its name, message and place', async () => {
    const ErrorSchema = z.object({
      error: z.object({ name: z.string(), message: z.string(), traceback: z.string() }),
    });
    for (const [code, name, message] of [
      ['1/0', 'ZeroDivisionError', 'division by zero'],
      ['x = (1,\n2', 'SyntaxError', "'(' was never closed"],
      ["raise ValueError('é\\n☃')", 'ValueError', 'é\n☃'],
    ] as const) {
      const result = await py(code);
      expect(result.isError).toBe(true);
      const { error } = ErrorSchema.parse(result.structuredContent);
      expect(error.name).toBe(name);
      expect(error.message).toContain(message);
      expect(textOf(result)).toContain(`status: failed, ${name}`);
      expect(JSON.stringify(result)).not.toMatch(/\\u001b|host-agent/);
    }
  });

  test('R42: gets numbers that JSON does not have as text', async () => {
    const result = await py("{'a': float('nan'), 'b': float('inf'), 'c': -0.0, 'd': 10**30}");
    const text = "{'a': nan, 'b': inf, 'c': -0.0, 'd': 1000000000000000000000000000000}";
    expect(textOf(result)).toBe(text);
    expect(result.structuredContent).toMatchObject({ value: text });
  });

  test('is shown a figure', async () => {
    const result = await py(
      [
        'import base64',
        'class Figure:',
        '  def _repr_png_(self):',
        "    return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')",
        'Figure()',
      ].join('\n'),
    );
    expect(result.content.map(({ type }) => type)).toEqual(['text', 'image']);
  });

  test('hears of the output while the program runs', async () => {
    const heard: { progress: number; message?: string }[] = [];
    const result = await sh('echo line 1; until [ -e heard ]; do sleep 0.1; done; rm heard; echo line 2', {
      onprogress: (progress) => {
        if (heard.push(progress) === 1) void py("open('heard', 'w').close()");
      },
    });
    expect(textOf(result)).toBe('line 1\nline 2\n');
    expect(heard.map(({ message }) => message).join('')).toBe('line 1\nline 2\n');
    expect(heard.length).toBeGreaterThanOrEqual(2);
    const numbers = heard.map(({ progress }) => progress);
    expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
  });

  test('R32: stops a call that it gives up, with its program, and goes on', async () => {
    await py('kept = 1');
    const abort = new AbortController();
    const command = 'echo begun > /tmp/begun; sleep infinity; echo no > /tmp/late';
    const endless = { command, session_id: sessionId, timeout_ms: ENDLESS_MS };
    const running = client.call('run_command', endless, { signal: abort.signal, timeout: ENDLESS_MS });
    running.catch(() => undefined);
    const path = `/v1/sessions/${sessionId}/executions`;
    const ListSchema = z.object({ executions: z.array(z.object({ status: z.string() })) });
    const newest = async () =>
      (await stack().api.json(ListSchema, 'GET', `${path}?limit=1`)).value.executions[0]?.status;
    await until('the program runs', PATIENCE_MS, async () =>
      (await newest()) === 'running' ? true : undefined,
    );
    abort.abort();
    await until('the call is stopped', PATIENCE_MS, async () =>
      (await newest()) === 'interrupted' ? true : undefined,
    );
    await expect(running).rejects.toThrow();
    const after = await sh(
      'cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep infinit[y]"; ls /tmp/begun /tmp/late 2>/dev/null; true',
    );
    expect(textOf(after)).toBe('0\n/tmp/begun\n');
    expect(textOf(await py('kept'))).toBe('1');
  });

  test('R32: ends the session of a call of its own that it gives up', async () => {
    const sessions = async () => (await stack().api.sessions()).sessions.map(({ session_id }) => session_id);
    const before = new Set(await sessions());
    const abort = new AbortController();
    const endless = { command: 'sleep infinity', timeout_ms: ENDLESS_MS };
    const running = client.call('run_command', endless, { signal: abort.signal, timeout: ENDLESS_MS });
    running.catch(() => undefined);
    const own = await until('the call has a session', PATIENCE_MS, async () =>
      (await sessions()).find((id) => !before.has(id)),
    );
    abort.abort();
    await until('the session is gone', PATIENCE_MS, async () =>
      (await sessions()).includes(own) ? undefined : true,
    );
  });

  test('is told what is wrong with a call, and which tools there are', async () => {
    const wrong = await client.call('execute_code', { language: 'python', session_id: sessionId });
    expect(wrong.isError).toBe(true);
    expect(textOf(wrong)).toBe('error: invalid_request: arguments.code: expected string');
    await expect(client.call('execute_pythn', {})).rejects.toThrow(
      /you may call: answer_program, call_tool, code, create_session/,
    );
  });
});

describe('R32: in the newer era a connection that is dropped', () => {
  test.each([
    ['while the program is quiet', 'sleep infinity'],
    ['while the program writes', 'while true; do echo x; sleep 0.1; done'],
  ])('ends its call %s', async (_when, command) => {
    const session = await stack().open();
    const abort = new AbortController();
    const response = await stack().api.fetch('POST', '/mcp', {
      body: {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: {
          name: 'run_command',
          arguments: { command, session_id: session.id, timeout_ms: ENDLESS_MS },
          _meta: {
            progressToken: 1,
            'io.modelcontextprotocol/protocolVersion': '2026-07-28',
            'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
            'io.modelcontextprotocol/clientCapabilities': {},
          },
        },
      },
      headers: {
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'run_command',
      },
      signal: abort.signal,
    });
    expect(response.status).toBe(200);
    const newest = async () => (await session.executions()).executions[0]?.status;
    await until('the program runs', PATIENCE_MS, async () =>
      (await newest()) === 'running' ? true : undefined,
    );
    abort.abort();
    await until('the call is stopped', PATIENCE_MS, async () =>
      (await newest()) === 'interrupted' ? true : undefined,
    );
    await session.delete();
  });
});
