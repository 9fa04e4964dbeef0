/** The proxy as its client sees it, over sockets instead of a guest. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EgressGate } from '../../../host-agent/egress/gate.ts';
import { HostBudget } from '../../../host-agent/egress/host-budget.ts';
import { compilePolicy } from '../../../host-agent/egress/policy.ts';
import { EgressProxy } from '../../../host-agent/egress/proxy.ts';
import { DEFAULT_EGRESS_SETTINGS, type EgressSettings } from '../../../host-agent/egress/settings.ts';
import type { LogFields } from '../../../host-agent/logging/log.ts';
import { NetworkSchema } from '../../../shared/network.ts';
import { selfSigned } from '../../fixtures/certificate.ts';
import { startUpstream, type Upstream } from '../../fixtures/upstream.ts';

const SECRET = 'Bearer sk-0123456789abcdef';
const SESSION = `ses_${'a'.repeat(38)}`;

interface Client {
  /** Sends the text and gives what comes back until the end. */
  ask(text: string): Promise<string>;
  port: number;
  lines: LogFields[];
}

const closing: (() => unknown)[] = [];
let upstream: Upstream;

beforeEach(async () => {
  upstream = await startUpstream();
  closing.push(() => upstream[Symbol.asyncDispose]());
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function startProxy(
  network: object,
  settings: Partial<EgressSettings> = {},
  shutUntil?: Promise<void>,
): Promise<Client> {
  const lines: LogFields[] = [];
  const keep = (fields: LogFields): void => void lines.push(fields);
  const policy = compilePolicy(NetworkSchema.parse(network));
  const whole = { ...DEFAULT_EGRESS_SETTINGS, hosts: new Map([['files.test', ['127.0.0.1']]]), ...settings };
  const gate = new EgressGate({
    sessionId: SESSION,
    policy,
    settings: whole,
    budget: new HostBudget(whole.maxConnections),
    log: { info: keep, warn: keep, error: keep },
    shutUntil,
  });
  const proxy = new EgressProxy({ gate, policy, certificateAuthorities: whole.certificateAuthorities });
  const server = createServer({ allowHalfOpen: true }, (socket) => proxy.accept(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sockets = new Set<{ destroy(): void }>();
  server.on('connection', (socket) => sockets.add(socket));
  closing.push(() => {
    gate.stop();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { ask: (text) => ask(server, text), port: (server.address() as AddressInfo).port, lines };
}

async function ask(server: Server, text: string): Promise<string> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('error', () => undefined);
  socket.write(text, 'latin1');
  await once(socket, 'close');
  return Buffer.concat(chunks).toString('latin1');
}

const get = (url: string, ...headers: string[]): string =>
  [`GET ${url} HTTP/1.1`, 'Connection: close', ...headers, '', ''].join('\r\n');

describe('a plain request', () => {
  test('goes to the allowed host and comes back whole', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const answer = await proxy.ask(
      get(`http://files.test:${upstream.port}/a?b=c`, 'Host: files.test', 'X-Own: 1'),
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(answer).toMatch(/\r\n\r\n(5\r\n)?hello/);
    expect(upstream.requests).toMatchObject([
      { method: 'GET', url: '/a?b=c', headers: { host: `files.test:${upstream.port}`, 'x-own': '1' } },
    ]);
  });

  test('waits while the way out is shut, and nothing is looked up or dialled for it', async () => {
    const agreed = Promise.withResolvers<void>();
    const looked: string[] = [];
    const lookup = async (host: string): Promise<string[]> => {
      looked.push(host);
      return [];
    };
    const network = { allow: [`files.test:${upstream.port}`, 'named.test:80'] };
    const proxy = await startProxy(network, { lookup }, agreed.promise);
    const answers = Promise.all([
      proxy.ask(get(`http://files.test:${upstream.port}/`)),
      proxy.ask(get('http://named.test/')),
    ]);
    expect(await proxy.ask(get('http://evil.test/'))).toMatch(/^HTTP\/1\.1 403 /);
    expect([upstream.connections(), looked]).toEqual([0, []]);
    agreed.resolve();
    expect((await answers)[0]).toContain('hello');
    expect(looked).toEqual(['named.test']);
  });

  test.each([
    ['http://evil.test/', 403, 'evil.test:80 is not in network.allow', 'not_listed'],
    [
      'http://files.test/',
      403,
      'files.test:80: network.allow of this session has the host but not this port',
      'port',
    ],
    ['http://127.0.0.1:PORT/', 403, 'the address 127.0.0.1', 'address_literal'],
    ['http://[::1]:PORT/', 403, 'the address ::1', 'address_literal'],
    ['http://[::ffff:127.0.0.1]:PORT/', 403, 'the address ::ffff:7f00:1', 'address_literal'],
    ['http://files.test:25/', 403, 'files.test:25', 'port'],
    ['http://0x7f.1:PORT/', 400, 'no host and port', 'malformed'],
    ['http://2130706433:PORT/', 400, 'no host and port', 'malformed'],
    ['http://files.test@evil.test/', 400, 'no host and port', 'malformed'],
    ['http://files%2etest:PORT/', 400, 'no host and port', 'malformed'],
    ['http://files.test:PORT:80/', 400, 'no host and port', 'malformed'],
    ['http://files.test:0/', 400, 'no host and port', 'malformed'],
    ['http://files.test:65536/', 400, 'no host and port', 'malformed'],
    ['http:///', 400, 'no host and port', 'malformed'],
    ['/hello', 400, 'this is a proxy', 'not_a_proxy_request'],
    ['https://files.test/', 400, 'this is a proxy', 'not_a_proxy_request'],
    ['ftp://files.test/', 400, 'this is a proxy', 'not_a_proxy_request'],
  ])('for %s is refused with %i and why', async (url, status, text, reason) => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const answer = await proxy.ask(get(url.replace('PORT', String(upstream.port))));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toContain(text);
    expect(answer.toLowerCase()).toContain(`sandgate-egress: ${reason}`);
    expect(upstream.connections()).toBe(0);
  });

  test.each(['FILES.test', 'files.test.', 'files.TEST.'])('may spell the host %s', async (host) => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    expect(await proxy.ask(get(`http://${host}:${upstream.port}/`))).toContain('hello');
    expect(upstream.requests[0]?.headers.host).toBe(`files.test:${upstream.port}`);
  });

  test('is not smuggled: what frames it twice is refused, and a Host header counts for nothing', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const url = `http://files.test:${upstream.port}/body`;
    const both = `POST ${url} HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n`;
    expect(await proxy.ask(both)).toMatch(/^HTTP\/1\.1 400 /);
    expect(await proxy.ask(get(url, 'Host: evil.test'))).toContain('\r\n\r\n');
    expect(upstream.requests.map(({ headers }) => headers.host)).toEqual([`files.test:${upstream.port}`]);
  });

  test('keeps its body and leaves what is of one hop behind', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const text = [
      `POST http://files.test:${upstream.port}/body HTTP/1.1`,
      'Connection: close, X-Hop',
      'X-Hop: 1',
      'Proxy-Authorization: Basic c2VjcmV0',
      'Transfer-Encoding: chunked',
      '',
      '5\r\nhello\r\n0\r\n\r\n',
    ].join('\r\n');
    expect(await proxy.ask(text)).toMatch(/\r\n\r\n(1\r\n)?5/);
    const [seen] = upstream.requests;
    expect(seen?.body).toBe('hello');
    expect(Object.keys(seen?.headers ?? {})).not.toContain('x-hop');
    expect(Object.keys(seen?.headers ?? {})).not.toContain('proxy-authorization');
  });

  test('that is answered in part is cut, so that it is not taken for whole', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const answer = await proxy.ask(get(`http://files.test:${upstream.port}/cut`));
    expect(answer).toContain('beginning');
    expect(answer.toLowerCase()).toContain('content-length: 1000');
  });
});

describe('a name', () => {
  test.each([
    ['10.0.0.1', 'private'],
    ['127.0.0.1', 'loopback'],
    ['169.254.169.254', 'metadata'],
    ['::ffff:10.0.0.1', 'embedded_ipv4'],
    ['fe80::1', 'link_local'],
  ])('that leads to %s is refused as %s', async (address, refusal) => {
    const proxy = await startProxy({ allow: ['*.example.com'] }, { lookup: async () => [address] });
    const answer = await proxy.ask(get('http://a.example.com/'));
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    expect(answer).toContain(`(${refusal})`);
    expect(proxy.lines).toMatchObject([
      { event: 'egress', status: 'denied', reason: 'address', detail: refusal },
    ]);
  });

  test('of which one address is good and one is not is refused', async () => {
    const proxy = await startProxy(
      { allow: ['a.example.com'] },
      { lookup: async () => ['8.8.8.8', '10.0.0.1'] },
    );
    expect(await proxy.ask(get('http://a.example.com/'))).toContain('(private)');
  });

  test('is asked for once: a second answer cannot take the place of the one that was checked', async () => {
    const answers = [['203.0.113.1'], ['127.0.0.1']];
    let asked = 0;
    const proxy = await startProxy(
      { allow: [`rebind.example.com:${upstream.port}`] },
      { lookup: async () => answers[asked++] ?? [] },
    );
    const ask = (): Promise<string> => proxy.ask(get(`http://rebind.example.com:${upstream.port}/`));
    expect(await ask()).toContain('(reserved)');
    expect(asked).toBe(1);
    expect(await ask()).toContain('(loopback)');
    expect(asked).toBe(2);
    expect(upstream.connections()).toBe(0);
  });

  test('without an address is a bad gateway', async () => {
    const proxy = await startProxy({ allow: ['a.example.com'] }, { lookup: async () => [] });
    expect(await proxy.ask(get('http://a.example.com/'))).toMatch(
      /^HTTP\/1\.1 502 a\.example\.com has no address/,
    );
  });

  test('of the operator is not asked for, and is open only to those whose rules have it', async () => {
    const lookup = async (): Promise<string[]> => {
      throw new Error('not to be asked');
    };
    const open = await startProxy({ allow: [`files.test:${upstream.port}`] }, { lookup });
    expect(await open.ask(get(`http://files.test:${upstream.port}/`))).toContain('hello');
    const closed = await startProxy({ allow: ['other.test'] }, { lookup });
    expect(await closed.ask(get(`http://files.test:${upstream.port}/`))).toMatch(/^HTTP\/1\.1 403 /);
  });
});

describe('a tunnel', () => {
  const tunnelled = (authority: string, rest: string): string =>
    `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n${rest}`;

  test('carries bytes both ways as they are, those that come with its request too', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    const inner = 'GET /inner HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
    const answer = await proxy.ask(tunnelled(`files.test:${upstream.port}`, inner));
    expect(answer).toMatch(/^HTTP\/1\.1 200 Connection established\r\n\r\nHTTP\/1\.1 200 OK/);
    expect(upstream.requests).toMatchObject([{ url: '/inner' }]);
  });

  test.each([
    ['files.test:25', 403, 'port'],
    ['files.test:22', 403, 'port'],
    ['evil.test:443', 403, 'not_listed'],
    ['127.0.0.1:443', 403, 'address_literal'],
    ['[::1]:443', 403, 'address_literal'],
    ['files.test', 400, 'malformed'],
    ['files.test:', 400, 'malformed'],
    ['files.test:443:80', 400, 'malformed'],
    ['user@files.test:443', 400, 'malformed'],
    ['0177.0.0.1:443', 400, 'malformed'],
  ])('to %s is refused with %i', async (authority, status, reason) => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`, 'files.test:443'] });
    const answer = await proxy.ask(tunnelled(authority, ''));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toContain(`sandgate-egress: ${reason}`);
    expect(upstream.connections()).toBe(0);
  });
});

describe('a tunnel with TLS in it', () => {
  async function startSecure() {
    const certificate = selfSigned('files.test');
    const secure = await startUpstream(certificate);
    closing.push(() => secure[Symbol.asyncDispose]());
    const proxy = await startProxy({ allow: [`files.test:${secure.port}`] });
    const greet = async (servername: string | undefined): Promise<TLSSocket> => {
      const socket = connect(proxy.port, '127.0.0.1');
      socket.write(`CONNECT files.test:${secure.port} HTTP/1.1\r\n\r\n`);
      const [first] = await once(socket, 'data');
      expect(String(first)).toContain(' 200 ');
      return connectTls({
        socket,
        ca: [certificate.cert],
        checkServerIdentity: () => undefined,
        ...(servername === undefined ? {} : { servername }),
      });
    };
    return { secure, proxy, greet };
  }

  test.each(['files.test', 'FILES.test', undefined])(
    'is for the host that it greets: %s',
    async (servername) => {
      const { secure, greet } = await startSecure();
      const client = await greet(servername);
      client.end('GET /inner HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n\r\n');
      const chunks: Buffer[] = [];
      for await (const chunk of client) chunks.push(chunk);
      expect(Buffer.concat(chunks).toString()).toContain('hello');
      expect(secure.requests).toMatchObject([{ url: '/inner' }]);
    },
  );

  test.each(['evil.test', 'files.test.evil.test', 'a.files.test'])(
    'is not for another: %s',
    async (servername) => {
      const { secure, proxy, greet } = await startSecure();
      const client = await greet(servername);
      const [error] = await once(client, 'error').catch((fault: unknown) => [fault]);
      expect(String(error)).toMatch(/unrecognized name|ECONNRESET|disconnected/);
      expect(secure.requests).toEqual([]);
      expect(proxy.lines).toContainEqual(
        expect.objectContaining({ status: 'denied', reason: 'server_name' }),
      );
    },
  );
});

describe('a header that is added', () => {
  test('arrives upstream, replaces one of the client, and is taken out of what comes back', async () => {
    const proxy = await startProxy({
      allow: [`files.test:${upstream.port}`],
      inject: [{ host: 'Files.Test', header: 'Authorization', secret: SECRET, tls: false }],
    });
    const answer = await proxy.ask(get(`http://files.test:${upstream.port}/echo`, 'authorization: mine'));
    expect(upstream.requests[0]?.headers.authorization).toBe(SECRET);
    expect(answer).toContain('Bearer *******************');
    expect(answer).not.toContain('0123456789abcdef');
    expect(JSON.stringify(proxy.lines)).not.toContain('0123456789abcdef');
    expect(await proxy.ask(get(`http://files.test:${upstream.port}/echo`).replace('GET', 'TRACE'))).toMatch(
      /^HTTP\/1\.1 405 /,
    );
  });

  test('goes by TLS that the host speaks, to a server that proves its name', async () => {
    const certificate = selfSigned('api.test');
    const secure = await startUpstream(certificate);
    closing.push(() => secure[Symbol.asyncDispose]());
    const hosts = new Map([
      ['api.test', ['127.0.0.1']],
      ['other.test', ['127.0.0.1']],
    ]);
    const inject = ['api.test', 'other.test'].map((host) => ({ host, header: 'x-key', secret: SECRET }));
    const network = { allow: [`api.test:${secure.port}`, `other.test:${secure.port}`], inject };
    const proxy = await startProxy(network, { hosts, certificateAuthorities: [certificate.cert] });
    expect(await proxy.ask(get(`http://api.test:${secure.port}/`))).toContain('hello');
    expect(secure.requests).toMatchObject([{ headers: { 'x-key': SECRET } }]);

    expect(await proxy.ask(get(`http://other.test:${secure.port}/`))).toMatch(/^HTTP\/1\.1 502 .*TLS/);
    const distrusting = await startProxy(network, { hosts });
    expect(await distrusting.ask(get(`http://api.test:${secure.port}/`))).toMatch(/^HTTP\/1\.1 502 .*TLS/);
    expect(secure.requests).toHaveLength(1);
  });
});

describe('what a session moves', () => {
  test('is counted, one line a decision, with no word of what was said', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] });
    await proxy.ask(get(`http://files.test:${upstream.port}/bytes/100000?token=hidden`, 'X-Own: hidden'));
    await proxy.ask(get('http://evil.test/hidden'));
    await expect.poll(() => proxy.lines.length).toBe(3);
    const about = { session_id: SESSION, host: 'files.test', port: upstream.port };
    expect(proxy.lines).toEqual(
      expect.arrayContaining([
        { event: 'egress', ...about, status: 'allowed', rule: `files.test:${upstream.port}` },
        {
          event: 'egress_ended',
          ...about,
          bytes_sent: expect.any(Number),
          bytes_received: expect.any(Number),
          duration_ms: expect.any(Number),
        },
        {
          event: 'egress',
          session_id: SESSION,
          host: 'evil.test',
          port: 80,
          status: 'denied',
          reason: 'not_listed',
        },
      ]),
    );
    const ended = proxy.lines.find(({ event }) => event === 'egress_ended');
    expect(ended?.bytes_received).toBeGreaterThan(100_000);
    expect(JSON.stringify(proxy.lines)).not.toContain('hidden');
  });

  test('has no more connections than its host has left for all of them, and gives back what it had', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] }, { maxConnections: 1 });
    const held = connect(proxy.port, '127.0.0.1');
    held.write(`CONNECT files.test:${upstream.port} HTTP/1.1\r\n\r\n`);
    await once(held, 'data');
    const ask = (): Promise<string> => proxy.ask(get(`http://files.test:${upstream.port}/`));
    expect(await ask()).toMatch(/^HTTP\/1\.1 503 too many connections of this host/);
    held.destroy();
    await expect.poll(ask).toContain('hello');
    await proxy.ask(get('http://evil.test/'));
    expect(await ask()).toContain('hello');
  });

  test('ends where its host lets it move no more', async () => {
    const proxy = await startProxy({ allow: [`files.test:${upstream.port}`] }, { maxBytes: 1_000_000 });
    const big = await proxy.ask(get(`http://files.test:${upstream.port}/bytes/4000000000`));
    expect(big.length).toBeLessThan(4_000_000_000);
    expect(await proxy.ask(get(`http://files.test:${upstream.port}/`))).toMatch(/^HTTP\/1\.1 429 .*bytes/);
  });

  test('is slowed where connections come one after the other too fast, and the log stays short', async () => {
    const proxy = await startProxy({ allow: ['files.test'] });
    const kept = get('http://evil.test/').replace('Connection: close\r\n', '');
    const answers = await proxy.ask(kept.repeat(600) + get('http://evil.test/'));
    expect(answers.match(/HTTP\/1\.1 403 /g)?.length).toBeGreaterThan(0);
    expect(answers.match(/sandgate-egress: rate/g)?.length).toBeGreaterThan(100);
    expect(proxy.lines.length).toBeLessThan(400);
    expect(proxy.lines.filter(({ reason }) => reason === 'rate').length).toBeLessThan(20);
  });
});
