/** A CONNECT: bytes both ways, as they are. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { canonicalHost, type EgressTarget } from '../../shared/network.ts';
import { type Denial, denial, denialResponse } from './denial.ts';
import type { EgressGate } from './gate.ts';
import { parseAuthority } from './target.ts';
import { readTlsGreeting } from './tls-greeting.ts';

/** The alert `unrecognized_name`, which TLS clients show. */
const UNRECOGNIZED_NAME = Buffer.from('15030300020270', 'hex');

export async function tunnel(
  { url = '' }: IncomingMessage,
  client: Duplex,
  { head, gate }: { head: Buffer; gate: EgressGate },
): Promise<void> {
  client.on('error', () => undefined);
  const target = parseAuthority(url, null);
  if (target === undefined) return refuse(client, denial('malformed'));
  const opened = await gate.open(target);
  if (!opened.ok) return refuse(client, opened.denial);
  const { socket } = opened;
  tie(client, socket);
  if (client.destroyed) {
    socket.destroy();
    return;
  }
  client.write('HTTP/1.1 200 Connection established\r\n\r\n');
  // There are protocols in which the other side speaks first.
  socket.pipe(client);
  const first = await firstBytes(client, socket, head);
  if (greetsAnother(first, target)) {
    gate.cut('server_name', target);
    socket.unpipe(client);
    client.write(UNRECOGNIZED_NAME, () => socket.destroy());
    return;
  }
  if (socket.destroyed) {
    client.resume();
    return;
  }
  if (first.length > 0) socket.write(first);
  client.pipe(socket);
}

/** One side may end and the other go on: half-closed is no fault. What breaks on one side, breaks on the other. */
function tie(client: Duplex, socket: Socket): void {
  client.once('close', () => {
    if (!client.readableEnded) socket.destroy();
  });
  socket.once('close', () => {
    client.unpipe(socket);
    // All that it said is on its way to the client, who may read it at leisure; what the client says has nowhere to go.
    if (socket.readableEnded) client.resume();
    else client.destroy();
  });
}

/** What the client says before it is known to which protocol it belongs; nothing of it has gone on yet. */
function firstBytes(client: Duplex, socket: Socket, head: Buffer): Promise<Buffer> {
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  let bytes = head;
  const isKnown = (): boolean => readTlsGreeting(bytes).kind !== 'incomplete';
  const done = (): void => {
    client.off('data', take);
    client.off('end', done);
    client.off('close', done);
    socket.off('close', done);
    client.pause();
    resolve(bytes);
  };
  const take = (chunk: Buffer): void => {
    bytes = Buffer.concat([bytes, chunk]);
    if (isKnown()) done();
  };
  if (isKnown()) return Promise.resolve(bytes);
  client.on('data', take);
  client.once('end', done);
  client.once('close', done);
  socket.once('close', done);
  return promise;
}

/** A greeting for another host than the tunnel's would get past the rules by way of a server that has both. */
function greetsAnother(first: Buffer, target: EgressTarget): boolean {
  const greeting = readTlsGreeting(first);
  switch (greeting.kind) {
    case 'malformed':
      return true;
    case 'incomplete':
    case 'other':
      return false;
    case 'tls':
      return greeting.serverName !== undefined && canonicalHost(greeting.serverName)?.host !== target.host;
  }
}

function refuse(client: Duplex, denied: Denial): void {
  client.end(denialResponse(denied));
  client.resume();
}
