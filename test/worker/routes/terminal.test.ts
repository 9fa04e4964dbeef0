/** Terminals at the edge: what a client's socket and the host's transfer say to each other, and their bounds. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  encodeMessage,
  MAX_TERMINAL_MESSAGE_BYTES,
  MESSAGE_BYTES,
  MESSAGE_TEXT,
  MessageDecoder,
  TERMINAL_CLIENT_WINDOW_BYTES,
  TERMINAL_UNTOLD_BYTES,
} from '../../../shared/program.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import type { TransferDouble } from '../../fixtures/host-double/transfer-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let base: string;
let token: string;
const begun: TransferDouble[] = [];

vi.setConfig({ testTimeout: 30_000 });
beforeEach(async () => {
  host = await connectFakeHost();
  token = await tokenOf();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  base = `/v1/sessions/${SessionSchema.parse(created.json).session_id}`;
  begun.length = 0;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

function play(script: (transfer: TransferDouble) => void | Promise<void>): void {
  host.transferScript = (transfer) => {
    begun.push(transfer);
    transfer.head();
    return script(transfer);
  };
}

class Client {
  readonly texts: string[] = [];
  receivedBytes = 0;
  readonly closed: Promise<{ code: number; reason: string }>;
  readonly socket: WebSocket;
  onBytes: () => void = () => undefined;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.accept();
    socket.addEventListener('message', ({ data }) => {
      if (typeof data === 'string') this.texts.push(data);
      else if (data instanceof ArrayBuffer) {
        this.receivedBytes += data.byteLength;
        this.onBytes();
      }
    });
    this.closed = new Promise((resolve) => {
      socket.addEventListener('close', ({ code, reason }) => resolve({ code, reason }));
    });
  }

  static async open(query = ''): Promise<Client> {
    const response = await request('GET', `${base}/terminal${query}`, {
      token,
      headers: { Upgrade: 'websocket' },
    });
    if (response.webSocket === null)
      throw new Error(`no socket: ${response.status} ${await response.text()}`);
    return new Client(response.webSocket);
  }
}

function only(): TransferDouble {
  const [transfer] = begun;
  if (transfer === undefined) throw new Error('the host was not asked');
  return transfer;
}

function messagesTo(transfer: TransferDouble): [number, string][] {
  const decoder = new MessageDecoder();
  return transfer.received
    .flatMap((bytes) => decoder.push(bytes) ?? [])
    .map(({ kind, bytes }) => [kind, new TextDecoder().decode(bytes)]);
}

const ready = () => {
  const { request: asked } = only();
  const id = asked.operation === 'terminal_attach' ? asked.terminal_id : '';
  return new TextEncoder().encode(JSON.stringify({ type: 'ready', terminal_id: id, offset: 0 }));
};

describe('a socket on a terminal', () => {
  test('is granted as a terminal, and carries both kinds of messages both ways', async () => {
    play(async (transfer) => {
      await transfer.data(encodeMessage(MESSAGE_TEXT, ready()));
      await transfer.data(encodeMessage(MESSAGE_BYTES, new TextEncoder().encode('$ ')));
    });
    const client = await Client.open('?cols=100');
    expect(only().request).toMatchObject({
      operation: 'terminal_attach',
      create: true,
      size: { rows: 24, cols: 100 },
    });
    expect(host.commands.at(-1)?.claims).toMatchObject({ act: 'terminal', exec: null });
    await eventually(() => expect([client.texts.length, client.receivedBytes]).toEqual([1, 2]));
    client.socket.send(new TextEncoder().encode('ls\r'));
    client.socket.send('{"type":"resize","rows":5,"cols":6}');
    await only().until(() => messagesTo(only()).length === 2);
    expect(messagesTo(only())).toEqual([
      [MESSAGE_BYTES, 'ls\r'],
      [MESSAGE_TEXT, '{"type":"resize","rows":5,"cols":6}'],
    ]);
    only().done();
    expect(await client.closed).toEqual({ code: 1000, reason: 'exit' });
  });

  test('that closes at once has still said what it said, and ends its transfer', async () => {
    play(() => undefined);
    const client = await Client.open();
    client.socket.send(new TextEncoder().encode('make &\r'));
    client.socket.close(1000, 'bye');
    await only().until(() => only().isWhole);
    expect(messagesTo(only())).toEqual([[MESSAGE_BYTES, 'make &\r']]);
    expect(only().isCancelled).toBe(false);
    only().done();
  });

  test('whose client never says what it took is let go after so many bytes', async () => {
    const piece = encodeMessage(MESSAGE_BYTES, new Uint8Array(MAX_TERMINAL_MESSAGE_BYTES));
    play(async (transfer) => {
      while (!transfer.isCancelled && !transfer.isWhole) await transfer.data(piece);
      transfer.done();
    });
    const client = await Client.open();
    expect(await client.closed).toEqual({ code: 1013, reason: 'output was not acknowledged' });
    expect(client.receivedBytes).toBe(TERMINAL_UNTOLD_BYTES);
  });

  test('whose client says what it took gets no more than the window beyond that', async () => {
    const piece = encodeMessage(MESSAGE_BYTES, new Uint8Array(MAX_TERMINAL_MESSAGE_BYTES));
    let sent = 0;
    play(async (transfer) => {
      await transfer.until(() => transfer.isWhole || transfer.isCancelled || sent > 0);
    });
    const client = await Client.open();
    client.socket.send('{"type":"taken","bytes":0}');
    // Messages are taken in order: when this one is with the host, the one before has been heeded.
    client.socket.send(new TextEncoder().encode('x'));
    await only().until(() => only().receivedBytes > 0);
    const total = 4 * TERMINAL_CLIENT_WINDOW_BYTES;
    const giving = (async () => {
      for (; sent < total; sent += MAX_TERMINAL_MESSAGE_BYTES) await only().data(piece);
    })();
    await eventually(() => expect(client.receivedBytes).toBe(TERMINAL_CLIENT_WINDOW_BYTES));
    client.onBytes = () => client.socket.send(JSON.stringify({ type: 'taken', bytes: client.receivedBytes }));
    client.onBytes();
    await giving;
    await eventually(() => expect(client.receivedBytes).toBe(total));
    only().done();
    expect((await client.closed).code).toBe(1000);
  });

  test.each([
    ['text that is no control message', 'hello', 1008],
    ['a size that no window has', '{"type":"resize","rows":0,"cols":1}', 1008],
    ['more taken than was sent', '{"type":"taken","bytes":1}', 1008],
    ['a message that is too long', new Uint8Array(MAX_TERMINAL_MESSAGE_BYTES + 1), 1009],
  ])('is closed for %s', async (_name, message, code) => {
    play(() => undefined);
    const client = await Client.open();
    client.socket.send(message);
    expect((await client.closed).code).toBe(code);
    await only().until(() => only().isWhole || only().isCancelled);
    expect(only().receivedBytes).toBe(0);
    only().done();
  });

  test('is closed for a host that does not speak so, and when the link is lost', async () => {
    play((transfer) =>
      transfer.data(encodeMessage(MESSAGE_TEXT, new TextEncoder().encode('{"type":"ready"}'))),
    );
    expect((await (await Client.open()).closed).code).toBe(1012);
    play(() => undefined);
    const client = await Client.open();
    begun.at(-1)?.failed('transfer_failed');
    expect((await client.closed).code).toBe(1012);
  });

  test('is refused as any request when the host refuses', async () => {
    host.transferScript = (transfer) => transfer.failed('too_many_programs', '4 terminals are open');
    const refused = await api('GET', `${base}/terminal`, { token, headers: { Upgrade: 'websocket' } });
    expect(refused.status).toBe(429);
  });

  test('takes a bearer token as a subprotocol only beside the one that it speaks', async () => {
    play(() => undefined);
    const ask = (protocols: string) =>
      request('GET', `${base}/terminal`, {
        headers: { Upgrade: 'websocket', 'Sec-WebSocket-Protocol': protocols },
      });
    expect((await ask(`sandgate.bearer.${token}`)).status).toBe(400);
    expect((await ask('sandgate.terminal')).status).toBe(401);
    expect((await ask(`sandgate.terminal, sandgate.bearer.${token}, sandgate.bearer.${token}`)).status).toBe(
      400,
    );
    const opened = await ask(`sandgate.terminal, sandgate.bearer.${token}`);
    expect([opened.status, opened.headers.get('Sec-WebSocket-Protocol')]).toEqual([101, 'sandgate.terminal']);
    opened.webSocket?.accept();
    opened.webSocket?.close(1000);
    // A token in a subprotocol opens nothing else.
    const elsewhere = { 'Sec-WebSocket-Protocol': `sandgate.terminal, sandgate.bearer.${token}` };
    expect((await request('GET', base, { headers: elsewhere })).status).toBe(401);
  });
});
