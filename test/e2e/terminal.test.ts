/** Terminals through the whole road: a WebSocket client, the edge, the host, and bash on a pty in gVisor. */
import { describe, expect, test } from 'vitest';
import { MAX_TERMINALS, TERMINAL_REPLAY_BYTES } from '../../shared/program.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { useSession, useStack } from './stack.ts';
import { TerminalClient } from './terminal-client.ts';
import { until } from './until.ts';

const TIMEOUT_MS = 240_000;

const stack = useStack();
const session = useSession(stack);

async function ended(terminal: TerminalClient): Promise<void> {
  terminal.type('\x03\x15exit\r');
  await terminal.exits();
  await terminal.closed;
}

async function upgrade(path: string, headers: Record<string, string>): Promise<number> {
  const { request } = await import('node:http');
  const url = new URL(`${stack().api.url}${path}`);
  return new Promise((resolve, reject) => {
    const asked = request(url, {
      headers: {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
        ...headers,
      },
    });
    asked.on('response', (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asked.on('upgrade', (_response, socket) => {
      socket.destroy();
      resolve(101);
    });
    asked.on('error', reject);
    asked.end();
  });
}

const bearer = (client: SessionClient) => ({ authorization: `Bearer ${client.api.token}` });

describe('a terminal', { timeout: TIMEOUT_MS }, () => {
  test('is bash on a tty of the size that was asked for, with the files of the session', async () => {
    await session().sh('echo from-a-call > shared.txt');
    const terminal = await TerminalClient.open(session(), { query: { rows: 30, cols: 100 } });
    expect(terminal.events[0]).toMatchObject({ type: 'ready', offset: 0 });
    await terminal.shows('sandbox:~$ ');
    terminal.type('tty; stty size; cat shared.txt\r');
    await terminal.shows('/dev/pts/');
    await terminal.shows('30 100');
    await terminal.shows('from-a-call');
    terminal.type('exit 7\r');
    expect(await terminal.exits()).toEqual({ type: 'exit', exit_code: 7, signal: null });
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit' });
  });

  test('has job control: ^C ends what is in front, ^Z stops it, and the shell goes on', async () => {
    const terminal = await TerminalClient.open(session());
    terminal.type("sleep 1000 & echo began''; fg\r");
    await terminal.shows('began');
    await terminal.shows('sleep 1000');
    terminal.type('\x03');
    terminal.type('echo code=$?\r');
    await terminal.shows('code=130');
    terminal.type("echo r''eady; cat\r");
    await terminal.shows('ready');
    terminal.type('lines\r');
    await terminal.shows('lines\r\nlines');
    terminal.type('\x1a');
    await terminal.shows('Stopped');
    terminal.type('kill -9 %1; while jobs %1; do sleep 0.05; done\r');
    await terminal.shows('Killed');
    await ended(terminal);
  });

  test('tells a program that its window has another size, and sends it signals by name', async () => {
    const terminal = await TerminalClient.open(session());
    const program = [
      'import os, signal, sys, time',
      'say = lambda *text: print(*text, flush=True)',
      'signal.signal(signal.SIGWINCH, lambda *_: say("si" + "ze", *os.get_terminal_size()))',
      'signal.signal(signal.SIGUSR1, lambda *_: say("us" + "r1"))',
      'say("wait" + "ing")',
      'while True: time.sleep(0.05)',
    ].join('\n');
    await session().file({ operation: 'write', path: 'watch.py', content: program });
    terminal.type('python3 watch.py\r');
    await terminal.shows('waiting');
    terminal.control({ type: 'resize', rows: 50, cols: 132 });
    await terminal.shows('size 132 50');
    terminal.control({ type: 'signal', name: 'SIGUSR1' });
    await terminal.shows('usr1');
    terminal.control({ type: 'signal', name: 'SIGTERM' });
    await terminal.shows('Terminated');
    await ended(terminal);
  });

  test('lives on without its socket, and gives who comes back the bytes that were missed', async () => {
    const first = await TerminalClient.open(session());
    first.type("echo o''ne; until [ -e left ]; do sleep 0.1; done; echo t''wo; echo thr''ee > later.txt\r");
    await first.shows('one\r\n');
    const { id, position } = first;
    await first.leave();
    await session().sh('touch left');
    await until('the command went on', PATIENCE_MS, async () =>
      (await session().sh('cat later.txt')).stdout === 'three\n' ? true : undefined,
    );
    const second = await TerminalClient.open(session(), { query: { terminal_id: id, after: position } });
    expect(second.events[0]).toEqual({ type: 'ready', terminal_id: id, offset: position });
    await second.shows('two\r\n');
    expect(second.output.includes('one\r\n')).toBe(false);
    second.type('echo same=$$\r');
    await second.shows('same=');
    const whole = await TerminalClient.open(session(), { query: { terminal_id: id } });
    await whole.shows('one\r\n');
    await whole.shows('two\r\n');
    await whole.leave();
    await ended(second);
  });

  test('names a gap where more was written than is kept', async () => {
    const first = await TerminalClient.open(session());
    const { id } = first;
    first.type("sleep 0.5; head -c 300000 /dev/zero | tr '\\0' x; touch writ''ten\r");
    await first.leave();
    await until('all was written', PATIENCE_MS, async () =>
      (await session().sh('test -e written')).exit_code === 0 ? true : undefined,
    );
    const second = await TerminalClient.open(session(), { query: { terminal_id: id, after: 0 } });
    const [ready, gap] = await until('the gap is told', PATIENCE_MS, () =>
      second.events.length > 1 ? second.events : undefined,
    );
    expect(gap).toMatchObject({ type: 'gap', from: 0 });
    if (gap?.type !== 'gap') throw new Error('no gap');
    expect(ready).toMatchObject({ offset: gap.to });
    expect(gap.to).toBeGreaterThan(200_000);
    await until('the rest came', PATIENCE_MS, () =>
      second.receivedBytes >= TERMINAL_REPLAY_BYTES ? true : undefined,
    );
    await ended(second);
  });

  test('holds its program back while a client that says what it took takes nothing', async () => {
    const terminal = await TerminalClient.open(session());
    terminal.control({ type: 'taken', bytes: terminal.receivedBytes });
    terminal.acknowledges = false;
    const bytes = 8_000_000;
    terminal.type(`head -c ${bytes} /dev/zero | tr '\\0' y; touch all''written\r`);
    let before = -1;
    await until('nothing more comes', PATIENCE_MS, () => {
      const stands = before === terminal.receivedBytes && before > 100_000;
      before = terminal.receivedBytes;
      return stands ? true : undefined;
    });
    expect(terminal.receivedBytes).toBeLessThan(300_000);
    expect((await session().sh('test -e allwritten')).exit_code).toBe(1);
    terminal.acknowledges = true;
    terminal.control({ type: 'taken', bytes: terminal.receivedBytes });
    await until('all of it came', PATIENCE_MS, () => (terminal.receivedBytes > bytes ? true : undefined));
    expect(terminal.events.filter(({ type }) => type === 'gap')).toEqual([]);
    await ended(terminal);
  });

  test('takes the token of a page as a subprotocol, and never sends it back', async () => {
    const protocols = ['sandgate.terminal', `sandgate.bearer.${session().api.token}`];
    const terminal = await TerminalClient.open(session(), { protocols, headers: {} });
    expect(terminal.socket.protocol).toBe('sandgate.terminal');
    await ended(terminal);
  });

  test('is refused before it is a socket', async () => {
    const path = `${session().path}/terminal`;
    const headers = bearer(session());
    expect(await upgrade(path, {})).toBe(401);
    expect(
      await upgrade(path, { 'sec-websocket-protocol': 'sandgate.terminal, sandgate.bearer.x.y.z' }),
    ).toBe(401);
    expect(await upgrade(path, { ...headers, origin: 'https://evil.example' })).toBe(403);
    expect(await upgrade(`${path}?rows=0`, headers)).toBe(400);
    expect(await upgrade(`${path}?terminal_id=trm_${'A'.repeat(22)}`, headers)).toBe(404);
    expect((await stack().api.request('GET', path)).status).toBe(400);
    const reader = await stack().clientWith({ claims: { scope: 'sessions:read' } });
    expect(await upgrade(path, { authorization: `Bearer ${reader.token}` })).toBe(403);
    const stranger = await stack().clientWith({ claims: { tenant: 'other' } });
    expect(await upgrade(path, { authorization: `Bearer ${stranger.token}` })).toBe(404);
  });

  test('ends the socket, not itself, when a message is none of the protocol', async () => {
    const terminal = await TerminalClient.open(session());
    terminal.socket.send('resize please');
    expect((await terminal.closed).code).toBe(1008);
    const again = await TerminalClient.open(session(), { query: { terminal_id: terminal.id } });
    await ended(again);
  });

  test('outlives the edge: its client comes back, and its program has gone on', async () => {
    const first = await TerminalClient.open(session());
    first.type("for i in 1 2 3 4 5 6; do echo step''$i; sleep 0.5; done\r");
    await first.shows('step1');
    const { id } = first;
    await stack().restartEdge();
    await first.closed;
    const { position } = first;
    const second = await until('the client came back', PATIENCE_MS, () =>
      TerminalClient.open(session(), { query: { terminal_id: id, after: position } }).catch(() => undefined),
    );
    await second.shows('step6');
    expect(second.events.map(({ type }) => type)).toEqual(['ready']);
    await ended(second);
  });

  test('is one of a bounded number, and ends with its session', async () => {
    const own = await stack().open();
    const terminals: TerminalClient[] = [];
    for (let count = 0; count < MAX_TERMINALS; count += 1) terminals.push(await TerminalClient.open(own));
    expect(await upgrade(`${own.path}/terminal`, bearer(own))).toBe(429);
    await own.delete();
    for (const terminal of terminals) expect((await terminal.closed).code).toBe(1001);
  });
});
