/** Events of an execution on a WebSocket: the same events as server-sent ones, and the same way to come back. */
import { abortAllDurableObjects } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { StreamEventSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { EVENT_SOCKET_UNTOLD_BYTES } from '../../../worker/event-sockets/event-socket.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { allKept } from '../harness/held-session.ts';

const MessageSchema = z.object({ id: z.string(), data: StreamEventSchema.nullable() });
type Message = z.infer<typeof MessageSchema>;

let host: HostDouble;
let base: string;
let token: string;
let running: ExecutionDouble[];
beforeEach(async () => {
  running = [];
  host = await connectFakeHost({ script: (execution) => void running.push(execution) });
  token = await tokenOf();
  const created = await api('POST', '/v1/sessions', { token, body: {} });
  base = `/v1/sessions/${SessionSchema.parse(created.json).session_id}`;
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

async function begin(): Promise<ExecutionDouble> {
  const body = { tool_name: 'shell', arguments: { command: 'x' }, detach: true };
  await api('POST', `${base}/execute`, { token, body });
  await host.until(() => running.length === 1);
  const [execution] = running;
  if (execution === undefined) throw new Error('nothing runs');
  execution.started();
  return execution;
}

interface Client {
  socket: WebSocket;
  messages: Message[];
  closed: Promise<{ code: number; reason: string }>;
  until: (condition: (messages: Message[]) => boolean) => Promise<void>;
}

async function open(executionId: string, query = '', headers: Record<string, string> = {}): Promise<Client> {
  const response = await request('GET', `${base}/executions/${executionId}/events${query}`, {
    headers: { Upgrade: 'websocket', Authorization: `Bearer ${token}`, ...headers },
  });
  const socket = response.webSocket;
  if (socket === null) throw new Error(`no socket: ${response.status} ${await response.text()}`);
  const messages: Message[] = [];
  const closed = Promise.withResolvers<{ code: number; reason: string }>();
  socket.addEventListener('message', ({ data }) =>
    messages.push(MessageSchema.parse(JSON.parse(String(data)))),
  );
  socket.addEventListener('close', ({ code, reason }) => closed.resolve({ code, reason }));
  socket.accept();
  return {
    socket,
    messages,
    closed: closed.promise,
    until: async (condition) => {
      await expect.poll(() => condition(messages)).toBe(true);
    },
  };
}

const textOf = (messages: readonly Message[]) =>
  messages.map(({ data }) => (data?.event === 'stdout' ? data.text : '')).join('');
const hasEnded = (messages: readonly Message[]) => messages.at(-1)?.data?.event === 'end';

const sessionId = (): string => base.split('/').at(-1) ?? '';

/** Comes back with the id of the last message, each time the socket is cut. */
function readToEnd(executionId: string): { messages: Message[]; ended: Promise<void> } {
  const messages: Message[] = [];
  const read = async (): Promise<void> => {
    for (let code: number | undefined; code !== 1000; ) {
      const id = messages.at(-1)?.id;
      const client = await open(executionId, '', id === undefined ? {} : { 'Last-Event-ID': id });
      client.socket.addEventListener('message', () => void messages.push(...client.messages.splice(0)));
      messages.push(...client.messages.splice(0));
      ({ code } = await client.closed);
      messages.push(...client.messages.splice(0));
    }
  };
  return { messages, ended: read() };
}

describe('a socket with the events of an execution', () => {
  test('gives them as they come, and is closed in order after the end', async () => {
    const execution = await begin();
    const client = await open(execution.id);
    await execution.write('stdout', 'one\n');
    await client.until((messages) => textOf(messages) === 'one\n');
    await execution.write('stdout', 'two\n');
    await execution.finish();
    expect(await client.closed).toMatchObject({ code: 1000 });
    expect(hasEnded(client.messages)).toBe(true);
    expect(textOf(client.messages)).toBe('one\ntwo\n');
    // The place is named first, as in a stream of server-sent events.
    expect(client.messages[0]).toMatchObject({ id: `${execution.id}:0:0:0`, data: null });
  });

  test.each(['header', 'query'])('goes on after the id of a message, given by %s', async (by) => {
    const execution = await begin();
    const first = await open(execution.id);
    await execution.write('stdout', 'one\n');
    await first.until((messages) => textOf(messages) === 'one\n');
    const id = first.messages.at(-1)?.id ?? '';
    first.socket.close(1000);
    await execution.write('stdout', 'two\n');
    await execution.finish();
    const second =
      by === 'header'
        ? await open(execution.id, '', { 'Last-Event-ID': id })
        : await open(execution.id, `?last_event_id=${encodeURIComponent(id)}`);
    expect(await second.closed).toMatchObject({ code: 1000 });
    expect(textOf(second.messages)).toBe('two\n');
  });

  test.each<[string, () => Promise<void>]>([
    [
      'every object is lost',
      async () => {
        await allKept(host, { id: sessionId() });
        await abortAllDurableObjects();
        await host.until(() => host.controlEpoch === 0);
        await host.connect();
        await host.session(sessionId()).connect();
      },
    ],
    [
      'the link to the host is lost',
      async () => {
        host.session(sessionId()).drop();
        await host.session(sessionId()).connect();
      },
    ],
  ])('gives every byte once where %s in between', async (_, lose) => {
    const execution = await begin();
    const reading = readToEnd(execution.id);
    await execution.write('stdout', 'one\n');
    await expect.poll(() => textOf(reading.messages)).toBe('one\n');
    await lose();
    await host.until(() => host.session(sessionId()).isLinked);
    await execution.write('stdout', 'two\n');
    await execution.finish();
    await reading.ended;
    expect(textOf(reading.messages)).toBe('one\ntwo\n');
    const ends = reading.messages.filter(({ data }) => data?.event === 'end');
    expect(ends).toHaveLength(1);
  });

  test('waits for a client that says what it took, so that the program does', async () => {
    const execution = await begin();
    const client = await open(execution.id);
    await client.until((messages) => messages.length > 0);
    client.socket.send(JSON.stringify({ type: 'taken', messages: 0 }));
    // Proof that the word has arrived: what is wrong is answered after it.
    const writing = (async () => {
      for (let piece = 0; piece < 24; piece += 1) await execution.write('stdout', 'x'.repeat(128 * 1024));
      await execution.finish();
    })();
    await client.until((messages) => textOf(messages).length > 600_000);
    let taken = 0;
    while (!hasEnded(client.messages)) {
      const inFlight = client.messages
        .slice(taken)
        .reduce((sum, { data }) => sum + JSON.stringify(data).length, 0);
      expect(inFlight).toBeLessThan(1_500_000);
      taken = client.messages.length;
      client.socket.send(JSON.stringify({ type: 'taken', messages: taken }));
      await client.until((messages) => messages.length > taken || hasEnded(messages));
    }
    await writing;
    expect(textOf(client.messages).length).toBe(24 * 128 * 1024);
  });

  test('is closed for one that never says so, after a bound, and it may come back', async () => {
    const execution = await begin();
    const client = await open(execution.id);
    await client.until((messages) => messages.length > 0);
    const writing = (async () => {
      const piece = 'x'.repeat(128 * 1024);
      for (let sent = 0; sent <= EVENT_SOCKET_UNTOLD_BYTES; sent += piece.length) {
        await execution.write('stdout', piece);
      }
      await execution.finish();
    })();
    expect(await client.closed).toMatchObject({ code: 1013 });
    await writing;
  });

  test.each<[string, string]>([
    ['no JSON', 'hello'],
    ['more than was sent', '{"type":"taken","messages":99}'],
    ['another type', '{"type":"resize","rows":1}'],
  ])('is closed for %s from the client', async (_name, text) => {
    const execution = await begin();
    const client = await open(execution.id);
    await client.until((messages) => messages.length > 0);
    client.socket.send(text);
    expect(await client.closed).toMatchObject({ code: 1008 });
    await execution.finish();
  });

  test('may bring its token as a page does, and gets no other subprotocol than its own', async () => {
    const execution = await begin();
    const path = `${base}/executions/${execution.id}/events`;
    const offered = (protocols: string) =>
      request('GET', path, { headers: { Upgrade: 'websocket', 'Sec-WebSocket-Protocol': protocols } });
    const taken = await offered(`sandgate.events, sandgate.bearer.${token}`);
    expect(taken.status).toBe(101);
    expect(taken.headers.get('Sec-WebSocket-Protocol')).toBe('sandgate.events');
    taken.webSocket?.accept();
    taken.webSocket?.close();
    const other = await offered(`chat, sandgate.bearer.${token}`);
    expect(other.status).toBe(400);
    await other.body?.cancel();
    await execution.finish();
  });

  test('is refused before it opens where there is nothing to see', async () => {
    const execution = await begin();
    const refused = async (path: string, bearer: string) => {
      const answer = await request('GET', path, { token: bearer, headers: { Upgrade: 'websocket' } });
      await answer.body?.cancel();
      return answer.status;
    };
    const path = `${base}/executions/${execution.id}/events`;
    expect(await refused(path, await tokenOf({ claims: { tenant: 'other' } }))).toBe(404);
    expect(await refused(path, 'nonsense')).toBe(401);
    expect(await refused(path.replace(execution.id, `exe_${'a'.repeat(22)}`), token)).toBe(404);
    await execution.finish();
  });
});
