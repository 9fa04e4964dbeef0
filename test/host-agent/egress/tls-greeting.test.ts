import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { connect } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { readTlsGreeting } from '../../../host-agent/egress/tls-greeting.ts';

/** The first bytes that a real client says. */
async function greetingOf(options: { servername?: string; maxVersion?: 'TLSv1.2' }): Promise<Buffer> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', ...options });
  client.on('error', () => undefined);
  const [socket] = await once(server, 'connection');
  const [bytes] = await once(socket, 'data');
  client.destroy();
  socket.destroy();
  server.close();
  return bytes;
}

const whole = await greetingOf({ servername: 'files.test' });

/** The same message in records of so many bytes. */
function inRecords(greeting: Buffer, recordBytes: number): Buffer {
  const handshake = greeting.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < handshake.length; at += recordBytes) {
    const piece = handshake.subarray(at, at + recordBytes);
    records.push(Buffer.from([22, 3, 1, piece.length >> 8, piece.length & 0xff]), piece);
  }
  return Buffer.concat(records);
}

describe('a greeting of a TLS client', () => {
  test.each([{}, { maxVersion: 'TLSv1.2' as const }])('names its server (%j)', async (options) => {
    const greeting = await greetingOf({ servername: 'a.example.com', ...options });
    expect(readTlsGreeting(greeting)).toEqual({ kind: 'tls', serverName: 'a.example.com' });
  });

  test('may name none', async () => {
    expect(readTlsGreeting(await greetingOf({}))).toEqual({ kind: 'tls', serverName: undefined });
  });

  test('is incomplete until its last byte has come, however it is cut', () => {
    for (let length = 0; length < whole.length; length++) {
      expect(readTlsGreeting(whole.subarray(0, length)).kind).toBe('incomplete');
    }
    for (const recordBytes of [1, 7, 100]) {
      const cut = inRecords(whole, recordBytes);
      expect(readTlsGreeting(cut)).toEqual({ kind: 'tls', serverName: 'files.test' });
      expect(readTlsGreeting(cut.subarray(0, -1)).kind).toBe('incomplete');
    }
  });

  test('is none where another protocol is spoken', () => {
    for (const text of ['GET / HTTP/1.1\r\n', 'SSH-2.0-x\r\n', '\x80\x2e\x01']) {
      expect(readTlsGreeting(Buffer.from(text, 'latin1')).kind).toBe('other');
    }
  });

  test('with its bytes changed is read, refused, or waited for, and never a fault', () => {
    for (let at = 0; at < whole.length; at++) {
      for (const value of [0, 1, 0x7f, 0xff]) {
        const changed = Buffer.from(whole);
        changed[at] = value;
        expect(['tls', 'malformed', 'incomplete', 'other']).toContain(readTlsGreeting(changed).kind);
      }
    }
  });

  test('that never ends is refused at last', () => {
    const endless = Buffer.concat([
      Buffer.from([22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff]),
      Buffer.alloc(33_000),
    ]);
    endless.writeUInt16BE(0xffff, 3);
    expect(readTlsGreeting(endless).kind).toBe('malformed');
    expect(readTlsGreeting(Buffer.from([22, 3, 1, 0, 0])).kind).toBe('malformed');
  });
});
