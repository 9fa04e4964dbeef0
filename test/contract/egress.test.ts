/** The way out of a real sandbox, with servers on the loopback address in the place of the internet. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { EgressSettings } from '../../host-agent/egress/settings.ts';
import type { LogFields } from '../../host-agent/logging/log.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { type Installation, setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { NetworkSchema } from '../../shared/network.ts';
import { startUpstream, type Upstream } from '../fixtures/upstream.ts';
import { type CallResult, LIMITS, newSandboxId, python, shell } from './subject.ts';

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;
const SESSION = `ses_${'a'.repeat(38)}`;
const SECRET = 'Bearer sk-0123456789abcdef';
const SET_UP_TIMEOUT_MS = 600_000;
const PATIENCE_MS = 30_000;

let sandboxes: RunscSandboxes;
let installation: Installation;
let stateDir: string;
let imageDigest: string;
let upstream: Upstream;
let answers: string[][] = [];
let lookups = 0;
const lines: LogFields[] = [];

const settings: EgressSettings = {
  isAllowed: true,
  allow: null,
  hosts: new Map([['files.test', ['127.0.0.1']]]),
  maxBytes: 64 * GIB,
  maxConnections: 1_000,
  hostRate: GIB,
  sandboxRate: GIB,
  lookup: async () => {
    lookups += 1;
    return answers.shift() ?? [];
  },
};

async function openSandboxes(dir: string, egress: EgressSettings): Promise<RunscSandboxes> {
  const keep = (fields: LogFields): void => void lines.push(fields);
  const opened = await RunscSandboxes.open({
    runscPath: installation.runscPath,
    imagesDir: installation.imagesDir,
    guestDir: installation.guestDir,
    stateDir: dir,
    cgroupParent: `/sandgate-egress-${process.pid}-${basename(dir)}`,
    capacity: 2,
    caps: { cpus: 2, memory_bytes: GIB, processes: 512, workspace_bytes: GIB, tmp_bytes: GIB },
    log: { info: keep, warn: keep, error: keep },
    egress,
  });
  if (!opened.ok) throw new Error(`${opened.code}: ${opened.detail}`);
  return opened.value;
}

beforeAll(async () => {
  installation = await setUp(locations(process.env), process.env, silentProgress);
  stateDir = await mkdtemp(join(tmpdir(), 'sandgate-egress-'));
  imageDigest = installation.image.digest;
  sandboxes = await openSandboxes(join(stateDir, 'usual'), settings);
}, SET_UP_TIMEOUT_MS);

afterAll(async () => {
  await sandboxes?.stop();
  await rm(stateDir, { recursive: true, force: true });
});

beforeEach(async () => {
  upstream = await startUpstream();
  lines.length = 0;
});

afterEach(() => upstream[Symbol.asyncDispose]());

async function within(
  network: object | null,
  work: (sandbox: Sandbox) => Promise<void>,
  host = sandboxes,
): Promise<void> {
  const started = await host.start({
    sandboxId: newSandboxId(),
    imageDigest,
    limits: { ...LIMITS, processes: 256 },
    environment: {},
    network: network === null ? null : { sessionId: SESSION, rules: NetworkSchema.parse(network) },
  });
  if (!started.ok) throw new Error(`${started.code}: ${started.detail}`);
  try {
    await work(started.value);
  } finally {
    await started.value.destroy();
  }
}

const files = (): object => ({ allow: [`files.test:${upstream.port}`] });
const url = (path: string): string => `http://files.test:${upstream.port}${path}`;

/** What a program sees of a URL: status and body, or the error. */
async function fetched(sandbox: Sandbox, address: string): Promise<string> {
  const code = `
import urllib.request, urllib.error
try:
    with urllib.request.urlopen(${JSON.stringify(address)}, timeout=20) as answer:
        out = f'{answer.status} {answer.read(100_000).decode()}'
except urllib.error.HTTPError as error:
    out = f'{error.code} {error.reason}: {error.read().decode()}'
except urllib.error.URLError as error:
    out = f'{error.reason}'
out`;
  return textOf(await python(sandbox, code, { timeoutMs: PATIENCE_MS }));
}

function textOf(result: CallResult): string {
  expect(result.error).toBeNull();
  return (result.value ?? '').replace(/^(['"])(.*)\1$/s, '$2');
}

describe('a sandbox without a network', () => {
  it('has an interface of its own only, no proxy, no variables, and no way to any address', async () => {
    await within(null, async (sandbox) => {
      const code = `
import os, socket
def reach(family, kind, address):
    with socket.socket(family, kind) as probe:
        probe.settimeout(3)
        try:
            probe.connect(address)
            probe.send(b'x')
            return 'reached'
        except OSError as error:
            return type(error).__name__
found = [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]
[found, [name for name in os.environ if 'proxy' in name.lower()],
 reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 3128)),
 reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', ${upstream.port})),
 reach(socket.AF_INET, socket.SOCK_STREAM, ('8.8.8.8', 53)),
 reach(socket.AF_INET, socket.SOCK_DGRAM, ('8.8.8.8', 53)),
 reach(socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80))]`;
      const seen = textOf(await python(sandbox, code));
      expect(seen).toMatch(/^\[\['lo'\], \[\], 'ConnectionRefusedError', 'ConnectionRefusedError', '/);
      expect(seen).not.toContain('reached');
      expect(upstream.connections()).toBe(0);
      expect(lines).toEqual([]);
    });
  });
});

describe('a sandbox with a network', () => {
  it('reaches what its rules name, by the variables that programs read', async () => {
    await within(files(), async (sandbox) => {
      expect(await fetched(sandbox, url('/'))).toBe('200 hello');
      const git = await shell(
        sandbox,
        `git ls-remote ${url('/repository')} 2>&1; exec 3<>/dev/tcp/8.8.8.8/53`,
      );
      expect(git.stderr).toMatch(/unreachable|refused|No route/);
      expect(upstream.requests.map(({ url: path }) => path)).toContain(
        '/repository/info/refs?service=git-upload-pack',
      );
      const interfaces = await python(
        sandbox,
        "[l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l]",
      );
      expect(interfaces.value).toBe("['lo']");
    });
  });

  it('is told why where it may not go', async () => {
    await within({ allow: [`files.test:${upstream.port}`, 'a.example.com'] }, async (sandbox) => {
      expect(await fetched(sandbox, 'http://evil.test/')).toContain(
        '403 evil.test:80 is not in network.allow of this session: sandgate: evil.test:80',
      );
      expect(await fetched(sandbox, 'https://evil.test/')).toContain(
        'Tunnel connection failed: 403 evil.test:443 is not in network.allow of this session',
      );
      expect(await fetched(sandbox, 'https://files.test:25/')).toContain(
        'Tunnel connection failed: 403 files.test:25',
      );
      expect(await fetched(sandbox, `http://127.1.1.1:${upstream.port}/`)).toContain(
        '403 the address 127.1.1.1',
      );
      expect(await fetched(sandbox, url('/to/http://evil.test/'))).toContain(
        '403 evil.test:80 is not in network.allow',
      );
      answers = [['10.0.0.1'], ['8.8.8.8', '127.0.0.1']];
      expect(await fetched(sandbox, 'http://a.example.com/')).toContain('not a public one (private)');
      expect(await fetched(sandbox, 'http://a.example.com/')).toContain('not a public one (loopback)');
      expect(
        lines.filter(({ status }) => status === 'denied').map(({ host, reason }) => `${host} ${reason}`),
      ).toEqual([
        'evil.test not_listed',
        'evil.test not_listed',
        'files.test port',
        '127.1.1.1 address_literal',
        'evil.test not_listed',
        'a.example.com address',
        'a.example.com address',
      ]);
    });
  });

  it('is blocked, and nothing in between grows, while its program reads nothing', async () => {
    const bytes = 128 * MIB;
    await within(files(), async (sandbox) => {
      const code = `
import urllib.request, time
answer = urllib.request.urlopen('${url(`/bytes/${bytes}`)}')
first = answer.read(1)
len(first)`;
      expect(textOf(await python(sandbox, code))).toBe('1');
      let before = -1;
      await expect
        .poll(
          () => {
            const now = upstream.sentBytes();
            const isStill = now === before;
            before = now;
            return isStill;
          },
          { timeout: PATIENCE_MS, interval: 500 },
        )
        .toBe(true);
      expect(upstream.sentBytes()).toBeLessThan(32 * MIB);
      const residentBefore = process.memoryUsage().rss;
      let peak = 0;
      const watch = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage().rss);
      }, 20);
      const rest = await python(
        sandbox,
        `
total = 1
while chunk := answer.read(1 << 20):
    total += len(chunk)
total`,
        { timeoutMs: 100_000 },
      );
      clearInterval(watch);
      expect(textOf(rest)).toBe(String(bytes));
      expect(peak - residentBefore).toBeLessThan(96 * MIB);
    });
  });

  it('sends as much as it likes, in order', async () => {
    await within(files(), async (sandbox) => {
      const code = `
import urllib.request
request = urllib.request.Request('${url('/body')}', data=b'x' * ${8 * MIB})
urllib.request.urlopen(request).read().decode()`;
      expect(textOf(await python(sandbox, code, { timeoutMs: PATIENCE_MS }))).toBe(String(8 * MIB));
    });
  });

  it('R20: has a bounded number of connections; those beyond it wait for their turn', async () => {
    await within(files(), async (sandbox) => {
      const code = `
import socket
request = b'GET ${url('/silent')} HTTP/1.1\\r\\n\\r\\n'
held = []
for _ in range(80):
    one = socket.create_connection(('127.0.0.1', 3128), 10)
    one.sendall(request)
    held.append(one)
len(held)`;
      expect(textOf(await python(sandbox, code, { timeoutMs: PATIENCE_MS }))).toBe('80');
      await expect.poll(() => upstream.requests.length, { timeout: PATIENCE_MS }).toBe(64);
      expect(upstream.open()).toBe(64);
      await python(sandbox, 'for one in held: one.close()\nheld.clear()');
      await expect.poll(() => upstream.open(), { timeout: PATIENCE_MS }).toBe(0);
      expect(await fetched(sandbox, url('/'))).toBe('200 hello');
    });
  });

  it('R21: asks no name server, and carries nothing out in names that are not its own', async () => {
    await within({ allow: ['*.example.com'] }, async (sandbox) => {
      lookups = 0;
      const code = `
import socket, urllib.request, urllib.error
def asked(url):
    try:
        urllib.request.urlopen(url, timeout=20)
    except urllib.error.HTTPError as error:
        return error.code
met = []
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x' * 40, ('8.8.8.8', 53))
except OSError as error:
    met.append('unreachable')
try:
    socket.getaddrinfo('secret.evil.test', 80)
except OSError:
    met.append('unresolved')
met + [asked('http://secret.evil.test/'), asked('http://8.8.8.8:53/')]`;
      expect(textOf(await python(sandbox, code, { timeoutMs: PATIENCE_MS }))).toBe(
        "['unreachable', 'unresolved', 403, 403]",
      );
      expect(lookups).toBe(0);
      // One behind the other on one connection: as fast as anything in there can ask.
      const flood = `
asking = [f'GET http://{at}.example.com/ HTTP/1.1\\r\\nHost: any\\r\\n' for at in range(400)]
link = socket.create_connection(('127.0.0.1', 3128), 20)
link.sendall(('\\r\\n'.join(asking) + 'Connection: close\\r\\n\\r\\n').encode())
answers = b''
while more := link.recv(65536):
    answers += more
answers.count(b'HTTP/1.1 429 '), answers.count(b'HTTP/1.1 ')`;
      const told = textOf(await python(sandbox, flood, { timeoutMs: 60_000 }));
      const [refused = 0, answered] = told.slice(1, -1).split(', ').map(Number);
      expect(answered).toBe(400);
      expect(refused).toBeGreaterThan(0);
      expect(lookups).toBe(400 - refused);
    });
  });

  it('never has the secret that its host adds', async () => {
    const inject = [{ host: 'files.test', header: 'Authorization', secret: SECRET, tls: false }];
    await within({ ...files(), inject }, async (sandbox) => {
      const echoed = await fetched(sandbox, url('/echo'));
      expect(upstream.requests.at(-1)?.headers.authorization).toBe(SECRET);
      expect(echoed).toContain('Bearer *******************');
      const code = `
import os, glob
def text(path):
    try:
        return open(path, 'rb').read(1 << 20)
    except OSError:
        return b''
seen = [text(p) for p in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline')] + [repr(dict(os.environ)).encode()]
[len(seen) > 4, any(b'sk-' + b'0123456789abcdef' in one for one in seen)]`;
      expect(textOf(await python(sandbox, code))).toBe('[True, False]');
      expect(JSON.stringify(lines)).not.toContain('0123456789abcdef');
    });
  });

  it('gets its port back when a program of it kills what serves it, or sits on it for a while', async () => {
    await within(files(), async (sandbox) => {
      expect(await fetched(sandbox, url('/'))).toBe('200 hello');
      const code = `
import os, glob, signal, socket
def proxies():
    for path in glob.glob('/proc/[0-9]*/cmdline'):
        try:
            if open(path).read().startswith('/sandgate/egress'):
                yield int(path.split('/')[2])
        except OSError:
            pass
killed = list(proxies())
for pid in killed:
    os.kill(pid, signal.SIGKILL)
impostor = socket.socket()
impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while True:
    try:
        impostor.bind(('127.0.0.1', 3128))
        break
    except OSError:
        for pid in proxies():
            os.kill(pid, signal.SIGKILL)
impostor.listen()
len(killed)`;
      expect(textOf(await python(sandbox, code, { timeoutMs: PATIENCE_MS }))).toBe('1');
      const asked = upstream.requests.length;
      await python(sandbox, 'impostor.close()');
      await expect
        .poll(() => fetched(sandbox, url('/')), { timeout: PATIENCE_MS, interval: 300 })
        .toBe('200 hello');
      expect(upstream.requests.length).toBe(asked + 1);
    });
  });

  it('leaves no connection behind when it goes', async () => {
    await within(files(), async (sandbox) => {
      const code = `
import socket
one = socket.create_connection(('127.0.0.1', 3128), 10)
one.sendall(b'CONNECT files.test:${upstream.port} HTTP/1.1\\r\\n\\r\\n')
one.recv(100).split(b'\\r\\n')[0].decode()`;
      expect(textOf(await python(sandbox, code))).toBe('HTTP/1.1 200 Connection established');
      expect(upstream.open()).toBe(1);
    });
    await expect.poll(() => upstream.open(), { timeout: PATIENCE_MS }).toBe(0);
    expect(lines.map(({ event }) => event)).toContain('egress_closed');
  });
});

describe('R19: the bandwidth of a host', () => {
  const HOST_RATE = 4 * MIB;
  const SECONDS = 6;
  const BUFFERS_FILL_S = 3;
  let narrow: RunscSandboxes;

  beforeAll(async () => {
    const rates = { hostRate: HOST_RATE, sandboxRate: 3 * MIB };
    narrow = await openSandboxes(join(stateDir, 'narrow'), { ...settings, ...rates });
  });
  afterAll(() => narrow.stop());

  /** Counts from when the buffers on the way, megabytes of them, are full. */
  const uploads = (seconds: number): string => `
import http.client, time
begin = time.monotonic() + ${BUFFERS_FILL_S}
end = begin + ${seconds}
sent = 0
link = http.client.HTTPConnection('127.0.0.1', 3128)
link.putrequest('POST', '${url('/body')}'); link.putheader('Transfer-Encoding', 'chunked'); link.endheaders()
piece = b'10000\\r\\n' + bytes(65536) + b'\\r\\n'
while (now := time.monotonic()) < end:
    link.send(piece)
    if now >= begin: sent += 65536
link.close()
sent`;

  const sent = async (sandbox: Sandbox): Promise<number> =>
    Number(textOf(await python(sandbox, uploads(SECONDS), { timeoutMs: 60_000 })));

  it('holds a flood back to the rate of its sandbox, and drops none of it', async () => {
    await within(
      files(),
      async (sandbox) => {
        const perSecond = (await sent(sandbox)) / SECONDS;
        expect(perSecond).toBeGreaterThan(MIB);
        expect(perSecond).toBeLessThan(3.6 * MIB);
        const started = performance.now();
        const down = `
import urllib.request
len(urllib.request.urlopen('${url(`/bytes/${9 * MIB}`)}').read())`;
        expect(textOf(await python(sandbox, down, { timeoutMs: 60_000 }))).toBe(String(9 * MIB));
        expect(performance.now() - started).toBeGreaterThan(2_500);
      },
      narrow,
    );
  });

  it('is shared fairly by those who want more than there is', async () => {
    await within(
      files(),
      (one) =>
        within(
          files(),
          async (other) => {
            const amounts = await Promise.all([sent(one), sent(other)]);
            const total = amounts[0] + amounts[1];
            expect(total).toBeLessThan(1.2 * HOST_RATE * SECONDS);
            for (const amount of amounts) expect(amount / total).toBeGreaterThan(0.35);
          },
          narrow,
        ),
      narrow,
    );
  });
});

describe('a sandbox that goes on from a checkpoint', () => {
  it('has the way out that it is given then, and none where it is given none', async () => {
    await within(files(), async (sandbox) => {
      expect(await fetched(sandbox, url('/'))).toMatch(/^200 /);
      const imageDir = await mkdtemp(join(stateDir, 'image-'));
      const taken = await sandbox.checkpoint?.(imageDir);
      if (taken?.ok !== true) throw new Error(taken?.detail ?? 'there are no checkpoints');
      for (const { network, answer } of [
        { network: files(), answer: /^200 / },
        { network: { allow: ['other.test:443'] }, answer: /^403 / },
        { network: null, answer: /refused/ },
      ]) {
        const rules = network === null ? null : { sessionId: SESSION, rules: NetworkSchema.parse(network) };
        const config = { sandboxId: newSandboxId(), imageDigest, limits: LIMITS, environment: {} };
        const restored = await sandboxes.restore(
          { ...config, network: rules },
          {
            imageDir,
            state: taken.value.state,
            generation: 1,
            isCopy: true,
            sinkOf: () => async () => undefined,
          },
        );
        if (!restored.ok) throw new Error(`${restored.code}: ${restored.detail}`);
        restored.value.goOn();
        expect(await fetched(restored.value.sandbox, url('/'))).toMatch(answer);
        await restored.value.sandbox.destroy();
      }
      await taken.value.goOn();
      expect(await fetched(sandbox, url('/'))).toMatch(/^200 /);
    });
  }, 120_000);
});
