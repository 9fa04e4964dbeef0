/** The port's program with a supervisor on this machine, and programs in its place that do not do what it does. */
import { once } from 'node:events';
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { GuestConnection } from '../../../host-agent/egress/guest-connection.ts';
import { GuestPort } from '../../../host-agent/egress/guest-port.ts';
import { requireFreePort } from '../../../scripts/development/port.ts';
import { eventually, type GuestUnderTest } from '../guest/guest-under-test.ts';
import { startPlain } from '../guest/plain-supervisor.ts';

let guest: GuestUnderTest;
let opened: GuestPort | undefined;
const connections: GuestConnection[] = [];

beforeAll(async () => {
  guest = await startPlain();
});

afterAll(() => guest.stop());

beforeEach(() => {
  connections.length = 0;
});

afterEach(() => {
  opened?.stop();
  opened = undefined;
});

async function open(port: number, program = join(guest.programs, 'egress')): Promise<GuestPort | undefined> {
  opened = await GuestPort.open({
    link: guest.link,
    port,
    program,
    bandwidth: { take: () => true, close: () => undefined },
    onConnection: (connection) => connections.push(connection),
  });
  return opened;
}

async function client(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

async function accepted(): Promise<GuestConnection> {
  await eventually('a connection arrives', () => connections.length > 0);
  const connection = connections.shift();
  if (connection === undefined) throw new Error('no connection');
  return connection;
}

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe('the port', () => {
  test('carries bytes both ways, each to its end', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const socket = await client(port);
    const connection = await accepted();
    socket.end('from the client');
    expect(await textOf(connection)).toBe('from the client');
    connection.end('from the host');
    expect(await textOf(socket)).toBe('from the host');
    await eventually('it is forgotten', () => opened?.connections === 0);
  });

  test('carries more than fits in between, in both directions at once, with nothing lost', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const socket = await client(port);
    const connection = await accepted();
    const bytes = Buffer.alloc(3_000_000, 'abcdefghij');
    connection.pipe(connection);
    socket.end(bytes);
    expect((await textOf(socket)) === bytes.toString()).toBe(true);
  });

  test('has no client wait for another that does not read', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const lazy = await client(port);
    lazy.pause();
    const flooded = await accepted();
    let written = 0;
    while (flooded.write(Buffer.alloc(64 * 1024))) written += 1;
    expect(written).toBeLessThan(1_000);
    const other = await client(port);
    const connection = await accepted();
    connection.end('prompt');
    expect(await textOf(other)).toBe('prompt');
    lazy.destroy();
    await eventually('the lazy one is cut', () => flooded.destroyed);
  });

  test('resets a client whose answer is cut', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const socket = await client(port);
    const connection = await accepted();
    connection.write('a beginning');
    await once(socket, 'data');
    const failed = once(socket, 'error');
    connection.destroy();
    await failed.catch(() => undefined);
    await eventually('it is gone', () => socket.destroyed);
    expect(socket.errored).toMatchObject({ code: 'ECONNRESET' });
  });

  test('accepts 64 connections; the next one waits until one of them is over', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const sockets: Socket[] = [];
    for (let index = 0; index < 65; index++) sockets.push(await client(port));
    await eventually('64 arrive', () => connections.length === 64);
    expect(opened?.connections).toBe(64);
    for (const connection of connections) connection.resume().once('end', () => connection.end());
    sockets[0]?.destroy();
    await eventually('the last one arrives', () => connections.length === 65);
    expect(opened?.connections).toBe(64);
    connections
      .at(-1)
      ?.resume()
      .once('end', () => connections.at(-1)?.end());
    for (const socket of sockets) socket.destroy();
    await eventually('all are forgotten', () => opened?.connections === 0);
  });

  test('is opened by nobody while somebody else has it', async () => {
    const port = await requireFreePort(0);
    await open(port);
    const first = opened;
    expect(await open(port)).toBeUndefined();
    first?.stop();
  });
});

describe('a program in its place', () => {
  const message = (kind: number, connection: number, body: Uint8Array = new Uint8Array(0)): Buffer => {
    const head = Buffer.alloc(9);
    head.writeUInt32BE(5 + body.length, 0);
    head.writeUInt8(kind, 4);
    head.writeUInt32BE(connection, 5);
    return Buffer.concat([head, body]);
  };
  const ready = message(1, 0, Buffer.alloc(4));
  const open1 = message(2, 1);
  const u32 = (value: number): Buffer => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value, 0);
    return bytes;
  };

  test.each([
    ['a message that is too long', Buffer.from('ffffffff', 'hex')],
    ['a message of no kind', message(99, 1)],
    ['a message without a head', Buffer.from('0000000101', 'hex')],
    ['data of a connection that is not there', message(3, 5, Buffer.from('x'))],
    ['one connection twice', Buffer.concat([open1, open1])],
    ['a 65th connection', Buffer.concat(Array.from({ length: 65 }, (_, index) => message(2, index + 1)))],
    [
      'data beyond its credit',
      Buffer.concat([open1, ...Array(5).fill(message(3, 1, Buffer.alloc(32 * 1024)))]),
    ],
    ['credit for nothing', Buffer.concat([open1, message(6, 1, u32(1))])],
    ['data after the end', Buffer.concat([open1, message(4, 1), message(3, 1, Buffer.from('x'))])],
    ['its own end', Buffer.alloc(0)],
  ])('that sends %s is started anew, and its connections are cut', async (what, bytes) => {
    const script = join(guest.programs, 'impostor');
    const starts = join(guest.work, 'starts');
    rmSync(starts, { force: true });
    writeFileSync(join(guest.programs, 'bytes'), Buffer.concat([ready, bytes]));
    const rest = what === 'its own end' ? 'sleep 0.1' : 'exec sleep 60';
    writeFileSync(script, `#!/bin/bash\necho >> ${starts}\ncat ${guest.programs}/bytes >&199\n${rest}\n`);
    chmodSync(script, 0o755);
    // Nobody reads: what comes counts against the credit.
    await open(0, script);
    await eventually('it is started again', () => existsSync(starts) && readFileSync(starts).length >= 2);
    const [first] = connections;
    if (first !== undefined) await eventually('its connection is cut', () => first.destroyed);
  });
});
