/** Sessions that move between two agents on real gVisor while a call runs: what the edge gets is one call, whole. */
import { hash } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Agent, startAgent } from '../../host-agent/edge/agent.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { watchSandboxes } from '../../host-agent/watchdog/watched-sandboxes.ts';
import { locations } from '../../scripts/locations.ts';
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import type { SequencedUp } from '../../shared/frames.ts';
import type { AttachPayload } from '../../shared/grant.ts';
import { newId } from '../../shared/ids.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../shared/limits.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { until, untilStill } from '../e2e/until.ts';
import { EdgeDouble } from '../fixtures/edge-double/edge-double.ts';
import { Grants, newSessionIdentity } from '../fixtures/edge-double/grants.ts';
import type { SessionPeer } from '../fixtures/edge-double/session-peer.ts';
import type { ServerSocket } from '../fixtures/edge-double/websocket-server.ts';
import { PATIENCE_MS } from '../patience.ts';

const SET_UP_TIMEOUT_MS = 600_000;
const TEST_TIMEOUT_MS = 240_000;
const TENANT = 'tenant-a';
/** So many that a call still runs when a busy machine has moved its session. */
const NUMBERS = 1_000;
const PRINT = `for number in range(${NUMBERS}):\n    print(number); time.sleep(0.01)\n`;
const KEY = toBase64Url(new Uint8Array(32).fill(7));

let edge: EdgeDouble;
let directory: string;
let image: string;
interface Host {
  agent: Agent;
  control: ServerSocket;
  hostDir: string;
}
const hosts: Host[] = [];

beforeAll(async () => {
  const installation = await setUp(locations(process.env), process.env, silentProgress);
  image = installation.image.digest;
  const { runscPath, imagesDir, guestDir } = installation;
  directory = await mkdtemp(join(tmpdir(), 'sandgate-move-'));
  edge = await EdgeDouble.start();
  for (const name of ['a', 'b']) {
    const hostDir = join(directory, name);
    const agent = await startAgent({
      hostDir,
      edgeUrl: edge.origin,
      edgeOrigin: edge.origin,
      enrolmentToken: edge.mintToken(),
      agentVersion: '0.0.0',
      caps: { ...DEFAULT_RESOURCE_LIMITS, cpus: 2 },
      log: SILENT_LOG,
      openSandboxes: async () => {
        const opened = await RunscSandboxes.open({
          runscPath,
          imagesDir,
          guestDir,
          stateDir: hostDir,
          cgroupParent: `/sandgate-move-${name}-${process.pid}`,
          capacity: 4,
          caps: { ...DEFAULT_RESOURCE_LIMITS, cpus: 2 },
          log: SILENT_LOG,
        });
        return opened.ok ? { ok: true, value: watchSandboxes(opened.value, { log: SILENT_LOG }) } : opened;
      },
      signal: new AbortController().signal,
    });
    if (!agent.ok) throw new Error(agent.detail);
    await agent.value.ready;
    const control = edge.controlSocket;
    if (control === undefined) throw new Error('there is no control link');
    hosts.push({ agent: agent.value, control, hostDir });
  }
}, SET_UP_TIMEOUT_MS);

afterAll(async () => {
  await Promise.all(hosts.map(({ agent }) => agent.stop()));
  await edge.stop();
  await rm(directory, { recursive: true, force: true });
});

type Suspended = Extract<SequencedUp, { type: 'suspended' }>;

/** A session as the edge has it, on one host at a time. */
class MovingSession {
  readonly sessionId = newSessionIdentity();
  readonly peers: SessionPeer[] = [];
  grants: Grants;
  on = 0;
  #epoch = 0;

  constructor() {
    this.grants = this.#newGrants();
  }

  get peer(): SessionPeer {
    const last = this.peers.at(-1);
    if (last === undefined) throw new Error('the session has no host');
    return last;
  }

  async attach(
    on: number,
    payload: Partial<AttachPayload> = {},
    acknowledges = true,
  ): Promise<Extract<SequencedUp, { type: 'ready' }>> {
    this.on = on;
    this.#epoch += 1;
    this.grants = this.#newGrants();
    const peer = edge.session({ sessionId: this.sessionId, tenant: TENANT, epoch: this.#epoch });
    peer.acknowledges = acknowledges;
    this.peers.push(peer);
    const grant = await this.grants.attach(payload);
    edge.controlSocket = this.#host.control;
    edge.commandControl(grant.token, grant.payload);
    return peer.frame('ready');
  }

  async execute(tool: string, toolArguments: object): Promise<string> {
    const grant = await this.grants.execute(tool, toolArguments, {
      limits: { ...DEFAULT_RESOURCE_LIMITS, timeout_ms: 120_000 },
    });
    this.peer.command(grant.token, grant.payload);
    return grant.claims.exec ?? '';
  }

  async stdin(executionId: string, bytes: string): Promise<void> {
    const grant = await this.grants.stdin(executionId, utf8(bytes));
    this.peer.command(grant.token, grant.payload);
  }

  async suspend(leaveRunning = false): Promise<string> {
    const snapshotId = newId('snp');
    const payload = utf8(
      JSON.stringify({
        snapshot_id: snapshotId,
        key: KEY,
        transfer_token: edge.chunks.token,
        leave_running: leaveRunning,
      }),
    );
    const grant = await this.grants.sign({ act: 'suspend' }, payload);
    this.peer.command(grant.token, grant.payload);
    return snapshotId;
  }

  async suspended(snapshotId: string): Promise<Suspended> {
    return this.peer.frame('suspended', (header) => header.snapshot_id === snapshotId);
  }

  /** From one host to the other. */
  async move(): Promise<Suspended> {
    const said = await this.suspended(await this.suspend());
    const ready = await this.attach(1 - this.on, { snapshot: restoreOf(said, this.#epoch, 'continue') });
    expect(ready.snapshot_id).toBe(said.snapshot_id);
    return said;
  }

  /** Once so much of it came, on whichever host. */
  async printed(executionId: string, bytes: number): Promise<void> {
    await this.peer.changes.until(`${bytes} bytes`, () =>
      this.output(executionId).length >= bytes ? true : undefined,
    );
  }

  /** All that the edge has of its output; throws where the streams of two hosts do not meet. */
  output(executionId: string): string {
    let whole = Buffer.alloc(0);
    for (const { header, payload } of this.peers.flatMap((peer) => peer.ofType('output'))) {
      if (header.execution_id !== executionId || header.stream !== 'stdout') continue;
      expect(header.offset).toBe(whole.length);
      whole = Buffer.concat([whole, payload]);
    }
    return whole.toString('utf8');
  }

  async ended(executionId: string) {
    const { outcome, receipt: envelope } = await this.peer.finished(executionId);
    const read = readReceipt(envelope);
    if (!read.ok) throw new Error(read.detail);
    return { outcome, receipt: read.value.receipt };
  }

  async destroy(): Promise<void> {
    const grant = await this.grants.destroy();
    this.peer.command(grant.token, grant.payload);
    await this.peer.frame('sandbox_lost');
  }

  get #host(): Host {
    const host = hosts[this.on];
    if (host === undefined) throw new Error(`there is no host ${this.on}`);
    return host;
  }

  #newGrants(): Grants {
    const { hostId } = this.#host.agent;
    return new Grants(
      edge.keys,
      {
        hostId,
        tenant: TENANT,
        sessionId: this.sessionId,
        epoch: this.#epoch,
        image,
      },
      1000 * this.#epoch,
    );
  }
}

function restoreOf(said: Suspended, generation: number, executions: 'continue' | 'stop') {
  return {
    snapshot_id: said.snapshot_id,
    manifest_sha256: said.manifest_sha256,
    key: KEY,
    transfer_token: edge.chunks.token,
    generation,
    executions,
  };
}

const linesOf = (count: number): string => Array.from({ length: count }, (_, index) => `${index}\n`).join('');

describe('a session that moves', () => {
  it('goes on with its call: each number once, in order, and a receipt of both hosts', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const code = `import time\nballast = bytes(20_000_000)\n${PRINT}len(ballast)`;
    const executionId = await session.execute('python', { code });
    for (const bytes of [200, 900]) {
      await session.printed(executionId, bytes);
      const said = await session.move();
      expect(said.executions).toMatchObject([{ execution_id: executionId }]);
    }
    const { outcome, receipt } = await session.ended(executionId);
    expect(outcome).toMatchObject({ status: 'succeeded', state_lost: false });
    expect(session.output(executionId)).toBe(linesOf(NUMBERS));
    expect(receipt.stdout).toEqual({
      sha256: hash('sha256', linesOf(NUMBERS)),
      bytes: linesOf(NUMBERS).length,
      truncated: false,
    });
    const [a, b] = hosts.map(({ agent }) => agent.hostId);
    expect(receipt).toMatchObject({
      host_id: a,
      former_hosts: [a, b],
      epoch: 3,
      usage: { wall_ms: expect.any(Number) },
    });
    expect(receipt.usage.wall_ms).toBeGreaterThan(5_000);
    expect(session.peer.part(executionId, 'value')).toBe('20000000');
    await session.destroy();
    await until('nothing is left of it', PATIENCE_MS, async () => {
      const left = await Promise.all(
        hosts.flatMap(({ hostDir }) => [
          readdir(join(hostDir, 'snapshots')),
          readdir(join(hostDir, 'bundles')),
        ]),
      );
      const sandboxes = hosts.map(({ agent }) => agent.sandboxes);
      return left.flat().length === 0 && sandboxes.every((count) => count === 0) ? true : undefined;
    });
  });

  it('keeps the digest of a long stream, and input that waits', { timeout: TEST_TIMEOUT_MS }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const command =
      'head -c 3000000 /dev/zero | tr "\\\\0" x; echo; read -r first; sleep 3; read -r second; echo "$first $second"';
    const executionId = await session.execute('shell', { command });
    await session.printed(executionId, 3_000_001);
    await session.stdin(executionId, 'one\ntw');
    await session.move();
    await session.stdin(executionId, 'o\n');
    const { outcome, receipt } = await session.ended(executionId);
    expect(outcome.status).toBe('succeeded');
    const whole = `${'x'.repeat(3_000_000)}\none two\n`;
    expect(session.output(executionId)).toBe(whole);
    expect(receipt.stdout).toMatchObject({ sha256: hash('sha256', whole), bytes: whole.length });
    await session.destroy();
  });

  it('stays where it is when it cannot be stored', { timeout: TEST_TIMEOUT_MS }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const executionId = await session.execute('python', {
      code: 'import time\nfor number in range(200):\n    print(number); time.sleep(0.01)',
    });
    await session.printed(executionId, 50);
    edge.chunks.fault = () => 403;
    const snapshotId = await session.suspend();
    const failed = await session.peer.frame('suspend_failed');
    edge.chunks.fault = undefined;
    expect(failed).toMatchObject({ snapshot_id: snapshotId, code: 'storage_unavailable' });
    const { outcome, receipt } = await session.ended(executionId);
    expect(outcome.status).toBe('succeeded');
    expect(session.output(executionId)).toBe(linesOf(200));
    expect(receipt.former_hosts).toBeUndefined();
    await session.move();
    await session.destroy();
  });

  it('stands still where it comes back until the edge agrees, and is removed where another has it', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const executionId = await session.execute('python', {
      code: `import time\n${PRINT}`,
    });
    await session.printed(executionId, 100);
    const said = await session.suspended(await session.suspend());
    const restore = restoreOf(said, 1, 'continue');
    await session.attach(1, { snapshot: restore }, false);
    const givenUp = session.peer;
    const length = await untilStill(
      'what it wrote as it was made ready is here',
      () => session.output(executionId).length,
    );
    await wait(500);
    expect(session.output(executionId).length).toBe(length);
    givenUp.send({ type: 'fenced', epoch: 3 });
    await until('it is gone', PATIENCE_MS, () => (hosts[1]?.agent.sandboxes === 0 ? true : undefined));
    // What was never agreed to says nothing of the session.
    session.peers.pop();
    await session.attach(0, { snapshot: restore }, false);
    await wait(300);
    session.peer.acknowledges = true;
    session.peer.acknowledgeAll();
    expect((await session.ended(executionId)).outcome.status).toBe('succeeded');
    expect(session.output(executionId)).toBe(linesOf(NUMBERS));
    await session.destroy();
  });

  it('has nothing of its calls run in a copy, though a program takes no interrupt', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const command =
      "trap '' INT TERM; (trap '' INT; while :; do echo x >>/tmp/beat; sleep 0.02; done) & echo; while :; do sleep 0.1; done";
    const executionId = await session.execute('shell', { command });
    await session.printed(executionId, 1);
    const said = await session.suspended(await session.suspend(true));
    const copy = new MovingSession();
    await copy.attach(1, { snapshot: restoreOf(said, 5, 'stop') });
    const code =
      'import time\nbeats = lambda: len(open("/tmp/beat").read())\nfirst = beats(); time.sleep(0.3)\n(first > 0, beats() - first)';
    const inCopy = await copy.execute('python', { code });
    expect((await copy.ended(inCopy)).outcome.status).toBe('succeeded');
    expect(copy.peer.part(inCopy, 'value')).toBe('(True, 0)');
    await Promise.all([session.destroy(), copy.destroy()]);
  });

  it('is copied while it goes on, and the copy has no call', { timeout: TEST_TIMEOUT_MS }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const executionId = await session.execute('python', {
      code: `import time\nmark = 1\n${PRINT}mark = 2`,
    });
    await session.printed(executionId, 50);
    const said = await session.suspended(await session.suspend(true));
    expect(said.left_running).toBe(true);
    const copy = new MovingSession();
    await copy.attach(1, { snapshot: restoreOf(said, 5, 'stop') });
    const inCopy = await copy.execute('python', { code: '(mark, open("/run/sandgate/generation").read())' });
    expect((await copy.ended(inCopy)).outcome.status).toBe('succeeded');
    expect(copy.peer.part(inCopy, 'value')).toBe("(1, '5\\n')");
    expect(copy.output(executionId)).toBe('');
    expect((await session.ended(executionId)).outcome.status).toBe('succeeded');
    expect(session.output(executionId)).toBe(linesOf(NUMBERS));
    await Promise.all([session.destroy(), copy.destroy()]);
  });

  it('goes on before what was copied of it is stored', { timeout: TEST_TIMEOUT_MS }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const executionId = await session.execute('python', {
      code: 'import os, time\nprint("waits")\nwhile not os.path.exists("/workspace/told"): time.sleep(0.01)\nprint("goes on")',
    });
    await session.printed(executionId, 'waits\n'.length);
    const held = Promise.withResolvers<void>();
    edge.chunks.held = held.promise;
    try {
      const before = edge.chunks.requests.length;
      const snapshotId = await session.suspend(true);
      await until('a piece is on its way', TEST_TIMEOUT_MS, () =>
        edge.chunks.requests.length > before ? true : undefined,
      );
      await session.execute('shell', { command: 'touch /workspace/told' });
      expect((await session.ended(executionId)).outcome.status).toBe('succeeded');
      expect(session.output(executionId)).toBe('waits\ngoes on\n');
      expect(session.peer.ofType('suspended')).toEqual([]);
      held.resolve();
      expect((await session.suspended(snapshotId)).left_running).toBe(true);
    } finally {
      held.resolve();
      edge.chunks.held = undefined;
    }
    await session.destroy();
  });

  it('is refused where its snapshot is damaged, and comes back from it afterwards', {
    timeout: TEST_TIMEOUT_MS,
  }, async () => {
    const session = new MovingSession();
    await session.attach(0);
    const before = await session.execute('python', { code: 'kept = 11' });
    await session.ended(before);
    const said = await session.suspended(await session.suspend());
    const restore = restoreOf(said, 1, 'continue');
    const damaged = { ...restore, manifest_sha256: '0'.repeat(64) };
    session.attach(1, { snapshot: damaged }).catch(() => 'it does not become ready');
    await edge.controlFrame('refused', ({ code }) => code === 'snapshot_damaged');
    await session.attach(1, { snapshot: restore });
    const after = await session.execute('python', { code: 'kept' });
    expect((await session.ended(after)).outcome.status).toBe('succeeded');
    expect(session.peer.part(after, 'value')).toBe('11');
    await session.destroy();
  });
});
