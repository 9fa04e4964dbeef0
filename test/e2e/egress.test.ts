/** A session's way out, through the whole road. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ReceiptSchema } from '../../shared/receipt.ts';
import { ReceiptExportSchema } from '../../shared/receipt-verify.ts';
import { SessionSchema } from '../../shared/session.ts';
import { SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { startUpstream, type Upstream } from '../fixtures/upstream.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { firstCallAfter } from './crash-checks.ts';
import { fork } from './forking.ts';
import { processesOfSandbox } from './leftovers.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const SECRET = 'Bearer sk-fedcba9876543210';
const FRAGMENT = 'fedcba9876543210';

let upstream: Upstream;
beforeAll(async () => {
  upstream = await startUpstream();
});
afterAll(() => upstream[Symbol.asyncDispose]());

const stack = useStack(() => ({
  SANDGATE_EGRESS_ALLOW: `files.test:${upstream.port},*.example.com`,
  SANDGATE_EGRESS_HOSTS: 'files.test=127.0.0.1,rebound.example.com=127.0.0.1',
}));

const network = () => ({
  allow: [`files.test:${upstream.port}`, 'denied.example.com'],
  inject: [{ host: 'files.test', header: 'authorization', secret: SECRET, tls: false }],
});

const url = (path: string): string => `http://files.test:${upstream.port}${path}`;

async function fetched(session: SessionClient, address: string): Promise<string> {
  const code = `
import urllib.request, urllib.error
try:
    out = urllib.request.urlopen(${JSON.stringify(address)}, timeout=20).read().decode()
except urllib.error.HTTPError as error:
    out = f'{error.code} {error.reason}'
except urllib.error.URLError as error:
    out = f'{error.reason}'
print(out)`;
  return (await session.py(code, { timeoutMs: PATIENCE_MS })).stdout.trim();
}

/** Prints the files of the guest that hold the secret, and how many arguments or variables of its programs do; planted words are found as well. */
const SEARCH = String.raw`
printf 'plant%s words' ed >/workspace/planted
words='fedcba[9]876543210|plante[d] words'
grep -rslE --devices=skip --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr "$words" /
PLANTED=yes cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -cE "$words|^PLANTED=yes$"`;

/** The way out is the one that the session was made with, and the secret stays on the other side of it. */
async function expectSameWayOut(session: SessionClient, after: string): Promise<void> {
  const asked = upstream.requests.length;
  expect(await fetched(session, url('/')), after).toBe('hello');
  const seen = upstream.requests.slice(asked).map(({ headers }) => headers.authorization);
  expect(seen, after).toEqual([SECRET]);
  expect(await fetched(session, 'http://evil.test/'), after).toBe(
    '403 evil.test:80 is not in network.allow of this session',
  );
  const search = await session.sh(SEARCH, { timeoutMs: PATIENCE_MS });
  expect(search.stdout.trim().split('\n'), `${after}: ${search.stderr}`).toEqual(['/workspace/planted', '1']);
  const { executions } = await session.executions();
  const paths = ['', '/executions', '/receipts'];
  for (const { execution_id } of executions) paths.push(`/executions/${execution_id}/events`);
  for (const path of paths) {
    const shown = await session.api.request('GET', `${session.path}${path}`, {
      headers: path.endsWith('/events') ? { accept: 'text/event-stream' } : {},
    });
    expect(shown.status, `${after}: ${path}`).toBe(200);
    expect(shown.text, `${after}: ${path}`).not.toContain(FRAGMENT);
  }
}

describe('a session with a network', () => {
  test('reaches its host with the header that it never sees', async () => {
    const session = await stack().open({ network: network() });
    expect(session.opened.network).toEqual({
      allow: network().allow,
      inject: [{ host: 'files.test', header: 'authorization', tls: false }],
    });
    expect(await fetched(session, url('/'))).toBe('hello');
    expect(upstream.requests.at(-1)?.headers.authorization).toBe(SECRET);
    expect(await fetched(session, 'http://evil.test/')).toBe(
      '403 evil.test:80 is not in network.allow of this session',
    );

    const shown = await stack().api.request('GET', session.path);
    const environment = await session.sh('env; cat /proc/*/environ | tr "\\0" "\\n"');
    const receipts = await stack().api.request('GET', `${session.path}/receipts`);
    // What went out is signed: at least the answer of the upstream.
    const { receipts: chain } = ReceiptExportSchema.parse(JSON.parse(receipts.text));
    const [first] = chain.map(({ payload }) => ReceiptSchema.parse(JSON.parse(atob(payload))));
    expect(first?.usage.egress_bytes).toBeGreaterThan('hello'.length);

    for (const text of [shown.text, environment.stdout, receipts.text]) {
      expect(text).not.toContain(FRAGMENT);
      expect(text.length).toBeGreaterThan(100);
    }
    expect(environment.stdout).toContain('https_proxy=http://127.0.0.1:3128');

    const log = await until('the refusal is logged', PATIENCE_MS, async () => {
      const text = await readFile(join(stack().stack.stateDir, 'logs/host-agent.log'), 'utf8');
      return text.includes('"reason":"not_listed"') ? text : undefined;
    });
    expect(log).toContain('"event":"egress"');
    expect(log).not.toContain(FRAGMENT);
    await session.delete();
  });

  test('keeps its way out when its sandbox is lost and another one takes its place', async () => {
    const session = await stack().open({ network: network() });
    const { sandbox_id: sandboxId } = await session.describe();
    const processes = await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '');
    const sentry = processes.find(({ command }) => command.startsWith('runsc-sandbox'));
    if (sentry === undefined) throw new Error(`no sentry of ${sandboxId}`);
    process.kill(sentry.pid, 'SIGKILL');
    await until('another sandbox answers', PATIENCE_MS, async () => {
      const { status } = await firstCallAfter(session, 'true');
      return status === 'succeeded' ? true : undefined;
    });
    expect((await session.describe()).sandbox_id).not.toBe(sandboxId);
    expect(await fetched(session, url('/'))).toBe('hello');
    expect(upstream.requests.at(-1)?.headers.authorization).toBe(SECRET);
    expect(await fetched(session, 'http://evil.test/')).toContain('403');
    await session.delete();
  });

  test('keeps its way out, and only that, in whatever it goes on as', async () => {
    const parent = await stack().open({ network: network() });
    const { api } = parent;
    await expectSameWayOut(parent, 'creation');
    const { value: snapshot } = await api.json(SnapshotSchema, 'POST', `${parent.path}/snapshots`, {
      body: { name: 'with a network' },
    });
    const [forked] = await fork(parent, 1);
    if (forked === undefined) throw new Error('there is no fork');
    const children = {
      fork: forked,
      from_snapshot: await stack().open({ from_snapshot: snapshot.snapshot_id }),
    };
    for (const [way, child] of Object.entries(children)) {
      expect(child.opened.network, way).toEqual(parent.opened.network);
      await expectSameWayOut(child, way);
    }
    for (const way of ['suspend', 'rollback'] as const) {
      const body = way === 'rollback' ? { snapshot_id: snapshot.snapshot_id } : {};
      await api.json(SessionSchema, 'POST', `${parent.path}/${way}`, { body });
      await expectSameWayOut(parent, way);
    }
    const stored = await api.request('GET', '/v1/snapshots');
    expect(stored.text).toContain(snapshot.snapshot_id);
    expect(stored.text).not.toContain(FRAGMENT);
    await Promise.all([parent, ...Object.values(children)].map((one) => one.delete()));
  });

  test('in one call of its own', async () => {
    const code = `import urllib.request; urllib.request.urlopen('${url('/')}').read().decode()`;
    const answer = await stack().api.request('POST', '/v1/execute', {
      body: { tool_name: 'python', arguments: { code }, network: network() },
    });
    expect(answer.text).toContain(`"value":"'hello'"`);
  });

  test('beyond what its host allows is not made, and is told so', async () => {
    const answer = await stack().api.request('POST', '/v1/sessions', {
      body: { network: { allow: ['pypi.org'] } },
    });
    expect(answer.status).toBe(422);
    expect(JSON.parse(answer.text)).toMatchObject({
      code: 'egress_refused',
      detail: 'network.allow: pypi.org is beyond what this host allows',
    });
  });

  test('that cannot be meant is refused with the path to it, and without the secret', async () => {
    const bad = { allow: ['*.com'], inject: [{ host: 'a.test', header: 'host', secret: SECRET }] };
    const answer = await stack().api.request('POST', '/v1/sessions', { body: { network: bad } });
    expect(answer.status).toBe(400);
    expect(answer.text).toContain('body.network.allow.0');
    expect(answer.text).not.toContain(FRAGMENT);
    const header = { host: 'files.test', header: 'x-key', secret: `${SECRET}\n` };
    const badSecret = { ...network(), inject: [header] };
    const refused = await stack().api.request('POST', '/v1/sessions', { body: { network: badSecret } });
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('body.network.inject.0.secret');
    expect(refused.text).not.toContain(FRAGMENT);
  });
});

describe('a session without one', () => {
  test('has no proxy', async () => {
    const session = await stack().open();
    expect(session.opened.network).toBeNull();
    const seen = await session.sh('env | grep -i proxy; (exec 3<>/dev/tcp/127.0.0.1/3128) 2>&1');
    expect(seen.stdout).toContain('Connection refused');
    expect(seen.stdout).not.toContain('proxy=');
    await session.delete();
  });
});
