/** MCP before 2026-07-28 on the real stack: official clients whose connection is cut in the middle of a call. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as FormerClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as FormerTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { FaultProxy } from '../fixtures/fault-proxy.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();

interface CallOptions {
  signal?: AbortSignal;
  timeout?: number;
  onprogress?: (progress: { message?: string | undefined }) => void;
}

const ResultSchema = z.object({
  isError: z.boolean().optional(),
  content: z.array(z.object({ type: z.literal('text'), text: z.string() })),
});

interface McpClient {
  call: (args: Record<string, unknown>, options: CallOptions) => Promise<z.infer<typeof ResultSchema>>;
  close: () => Promise<void>;
}

let proxy: FaultProxy;
let session: SessionClient;
/** Answers to the client's `GET`s. */
let resumed: number[];

beforeEach(async () => {
  proxy = await FaultProxy.start(stack().api.url);
  session = await stack().open();
  resumed = [];
});
afterEach(async () => {
  await session.delete();
  await proxy.stop();
});

function transportOptions() {
  return {
    requestInit: { headers: { Authorization: `Bearer ${stack().api.token}` } },
    fetch: async (url: string | URL, init?: RequestInit) => {
      const response = await fetch(url, init);
      const isResumption = new Headers(init?.headers).has('Last-Event-ID');
      if (init?.method === 'GET' && isResumption) resumed.push(response.status);
      return response;
    },
  };
}

async function connectCurrent(): Promise<McpClient> {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', proxy.url), transportOptions()));
  expect(client.getNegotiatedProtocolVersion()).toBe('2025-11-25');
  return {
    call: async (args, options) =>
      ResultSchema.parse(await client.callTool({ name: 'run_command', arguments: args }, options)),
    close: () => client.close(),
  };
}

async function connectFormer(): Promise<McpClient> {
  const client = new FormerClient({ name: 'test', version: '1' });
  await client.connect(new FormerTransport(new URL('/mcp', proxy.url), transportOptions()));
  return {
    call: async (args, options) =>
      ResultSchema.parse(await client.callTool({ name: 'run_command', arguments: args }, undefined, options)),
    close: () => client.close(),
  };
}

describe.each([
  ['the client of today, in the older era', connectCurrent],
  ['the client of the first generation', connectFormer],
])('%s', (_name, connect) => {
  test('goes on by itself where its connection is cut, twice: the program runs once and its answer arrives', async () => {
    const client = await connect();
    const heard: string[] = [];
    const command = [
      'echo run >> runs; echo one',
      'until [ -e first ]; do sleep 0.1; done; echo two',
      'until [ -e second ]; do sleep 0.1; done; echo three; wc -l < runs',
    ].join('; ');
    const calling = client.call(
      { command, session_id: session.id, timeout_ms: PATIENCE_MS },
      { timeout: 2 * PATIENCE_MS, onprogress: ({ message = '' }) => heard.push(message) },
    );
    for (const [lines, gate] of [
      ['one\n', 'first'],
      ['one\ntwo\n', 'second'],
    ] as const) {
      await until('the line is heard', PATIENCE_MS, () => (heard.join('') === lines ? true : undefined));
      const before = resumed.length;
      proxy.reset();
      await until('the client has come back', PATIENCE_MS, () =>
        resumed.length > before ? true : undefined,
      );
      await session.py(`open(${JSON.stringify(gate)}, 'w').close()`);
    }
    const result = await calling;
    expect(result).toMatchObject({ isError: false, content: [{ text: 'one\ntwo\nthree\n1\n' }] });
    expect('one\ntwo\nthree\n1\n'.startsWith(heard.join(''))).toBe(true);
    expect(resumed).toEqual([200, 200]);
    await client.close();
  });

  test('comes back once for a request that it cancelled, and never again', async () => {
    const client = await connect();
    const abort = new AbortController();
    const running = Promise.withResolvers<void>();
    const calling = client.call(
      { command: 'echo begun; sleep infinity', session_id: session.id, timeout_ms: PATIENCE_MS },
      { signal: abort.signal, timeout: 2 * PATIENCE_MS, onprogress: () => running.resolve() },
    );
    calling.catch(() => undefined);
    await running.promise;
    abort.abort();
    await expect(calling).rejects.toThrow();
    await until('the client is told that there is no answer', PATIENCE_MS, () =>
      resumed.length > 0 ? true : undefined,
    );
    // Longer than a client waits before it comes back.
    await client.call({ command: 'sleep 3', session_id: session.id }, { timeout: PATIENCE_MS });
    expect(resumed).toEqual([204]);
    await client.close();
  });
});
