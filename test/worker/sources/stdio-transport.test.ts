/** Lines of JSON over the socket of a process: as they come, whatever else the process says. */
import type { JSONRPCMessage } from '@modelcontextprotocol/client';
import { describe, expect, test, vi } from 'vitest';
import { utf8 } from '../../../shared/encoding.ts';
import { MAX_TERMINAL_MESSAGE_BYTES } from '../../../shared/program.ts';
import { McpConnection } from '../../../worker/sources/mcp/connection.ts';
import { inexactPlace } from '../../../worker/sources/mcp/exact-message.ts';
import { StdioTransport } from '../../../worker/sources/mcp/stdio-transport.ts';
import { eventually } from '../harness/eventually.ts';

/** The other end of the socket: what the host says of the process. */
async function started() {
  const { 0: client, 1: server } = new WebSocketPair();
  server.accept();
  server.binaryType = 'arraybuffer';
  const pieces: Uint8Array[] = [];
  const controls: string[] = [];
  server.addEventListener('message', ({ data }) => {
    if (data instanceof ArrayBuffer) pieces.push(new Uint8Array(data));
    else controls.push(String(data));
  });
  const onCut = vi.fn<() => void>();
  const transport = new StdioTransport({ open: async () => client, onCut });
  const messages: JSONRPCMessage[] = [];
  transport.onmessage = (message) => messages.push(message);
  const closed = new Promise<void>((resolve) => {
    transport.onclose = resolve;
  });
  await transport.start();
  const writes = (text: string | Uint8Array) => server.send(typeof text === 'string' ? utf8(text) : text);
  const says = (event: object) => server.send(JSON.stringify(event));
  return { server, transport, messages, pieces, controls, closed, onCut, writes, says };
}

const message = (id: number, text = '') => ({ jsonrpc: '2.0' as const, id, result: { text } });

describe('what a process writes', () => {
  test('is read as messages, in any pieces, with anything else between them', async () => {
    const { messages, writes, says } = await started();
    const bytes = utf8(`${JSON.stringify(message(1, 'grüß dich ☃'))}\n`);
    for (let at = 0; at < bytes.length; at += 1) writes(bytes.slice(at, at + 1));
    says({ type: 'stderr', text: 'warming up\n' });
    writes('Server running on stdio\n\n[1,2]\n{"not": "a message"}\n{broken\n');
    writes(`${JSON.stringify(message(2))}\r\n${JSON.stringify(message(3))}\n${JSON.stringify(message(4))}`);
    await eventually(() => expect(messages).toHaveLength(3));
    writes('\n');
    await eventually(() => expect(messages).toHaveLength(4));
    expect(messages).toEqual([message(1, 'grüß dich ☃'), message(2), message(3), message(4)]);
  });

  test('R61: is marked where its data has an integer that a double would round', async () => {
    const { messages, writes } = await started();
    const line = (data: string) => `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"id":${data}}}}\n`;
    writes(line('9007199254740993') + line('"9007199254740993"'));
    await eventually(() => expect(messages).toHaveLength(2));
    const places = messages.map((one) => ('result' in one ? inexactPlace(one.result) : undefined));
    expect(places).toEqual(['structuredContent.id', undefined]);
  });

  test('is acknowledged, so that it may write on', async () => {
    const { messages, controls, writes } = await started();
    const line = `${JSON.stringify(message(1, 'x'.repeat(100_000)))}\n`;
    writes(line.slice(0, 60_000));
    writes(line.slice(60_000));
    await eventually(() => expect(messages).toHaveLength(1));
    await eventually(() => expect(controls).not.toEqual([]));
    expect(JSON.parse(controls.at(-1) ?? '')).toEqual({ type: 'taken', bytes: line.length });
  });

  test('ends the connection where it ends, and its last words say why', async () => {
    const { transport, closed, onCut, says } = await started();
    says({ type: 'stderr', text: 'Error: no such\u001b[31m folder\n' });
    says({ type: 'exit', exit_code: 3, signal: null });
    await closed;
    expect(transport.fault).toBe('the process ended with exit code 3: Error: no such [31m folder');
    expect(onCut).not.toHaveBeenCalled();
    await expect(transport.send(message(1))).rejects.toThrow('the process ended with exit code 3');
  });

  test('may be cut off, or end by a signal: then what it was in is not trusted', async () => {
    const cut = await started();
    cut.server.close(1012);
    await cut.closed;
    expect(cut.transport.fault).toBe('the connection to the process was cut');
    expect(cut.onCut).toHaveBeenCalledTimes(1);
    const killed = await started();
    killed.says({ type: 'exit', exit_code: null, signal: 'SIGKILL' });
    await killed.closed;
    expect(killed.transport.fault).toBe('the process ended by SIGKILL');
    expect(killed.onCut).toHaveBeenCalledTimes(1);
  });

  test('is not held for ever where a line has no end', async () => {
    const { transport, closed, writes } = await started();
    const piece = new Uint8Array(1024 * 1024).fill(120);
    for (let n = 0; n < 17; n += 1) writes(piece);
    await closed;
    expect(transport.fault).toBe('a line of the process is too long');
  });
});

test('what is said to a process is one line, in pieces that the socket takes', async () => {
  const { transport, pieces } = await started();
  const long = message(1, 'ö'.repeat(MAX_TERMINAL_MESSAGE_BYTES));
  await transport.send(long);
  await eventually(() => expect(pieces.length).toBeGreaterThan(2));
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(MAX_TERMINAL_MESSAGE_BYTES);
  const text = await new Blob(pieces).text();
  expect(text).toBe(`${JSON.stringify(long)}\n`);
});

test('a server that never answers what it does not know is spoken to in the older era', async () => {
  const { 0: client, 1: server } = new WebSocketPair();
  server.accept();
  server.binaryType = 'arraybuffer';
  const methods: string[] = [];
  server.addEventListener('message', ({ data }) => {
    if (!(data instanceof ArrayBuffer)) return;
    const { id, method } = JSON.parse(new TextDecoder().decode(data));
    methods.push(method);
    if (method !== 'initialize') return;
    const result = {
      protocolVersion: '2024-11-05',
      capabilities: { tools: {} },
      serverInfo: { name: 'old', version: '1' },
    };
    server.send(utf8(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`));
  });
  const connection = await McpConnection.open(
    new StdioTransport({ open: async () => client, onCut: () => undefined }),
    { timeoutMs: 400, onListChanged: () => undefined },
  );
  expect(methods.slice(0, 2)).toEqual(['server/discover', 'initialize']);
  expect(connection.server).toEqual({ name: 'old', version: '1', protocol_version: '2024-11-05' });
  await connection.close();
});
