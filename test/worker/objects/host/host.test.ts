import {
  evictDurableObject,
  listDurableObjectIds,
  runDurableObjectAlarm,
  runInDurableObject,
} from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { toBase64 } from '../../../../shared/encoding.ts';
import {
  CLOSE_PROTOCOL_UNKNOWN,
  type ControlLinkDown,
  ControlLinkDownSchema,
  decodeFrame,
  encodeFrame,
  OLDEST_PROTOCOL_VERSION,
  PROTOCOL_VERSION,
  proofMessage,
} from '../../../../shared/frames.ts';
import { CONTROL_LINK_RATE } from '../../../../worker/objects/frame-rate.ts';
import { livenessOf } from '../../../../worker/objects/host/liveness.ts';
import { isWorthReporting } from '../../../../worker/objects/host/load-report.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import type { DoubleSocket } from '../../../fixtures/host-double/transport.ts';
import { eventually } from '../../harness/eventually.ts';
import { connectFakeHost, workerTransport } from '../../harness/fake-host.ts';
import { call, caller, newId, openSession } from '../../harness/sessions.ts';

let host: HostDouble;
beforeEach(async () => {
  host = await connectFakeHost();
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

const objectStub = () => env.HOST.get(env.HOST.idFromName(host.hostId));

async function inPool() {
  const hosts = await env.POOL.getByName('default').listHosts();
  if (!hosts.ok) throw new Error(hosts.detail);
  const own = hosts.value.find(({ host_id }) => host_id === host.hostId);
  if (own === undefined) throw new Error('not listed');
  return own;
}

describe('a control link', () => {
  test('shows the host in its pool with its images and room', async () => {
    expect(await inPool()).toMatchObject({
      state: 'connected',
      capacity: { sandboxes: 100 },
      images: host.images,
    });
  });

  test('takes images that came and went to the pool, and leaves its load as it was', async () => {
    const images = [{ name: 'imported', digest: `sha256:${'d'.repeat(64)}` }];
    host.sendControl({ type: 'images', images });
    await expect.poll(async () => (await inPool()).images).toEqual(images);
    expect(await inPool()).toMatchObject({ state: 'connected', capacity: { sandboxes: 100 } });
  });

  test('that is made again closes the older one and raises the epoch (A51)', async () => {
    const before = host.controlEpoch;
    await host.connect();
    expect(host.controlEpoch).toBe(before + 1);
    expect(await openSession(host)).toBeDefined();
  });

  test('survives an eviction, with what it carries', async () => {
    const session = await openSession(host);
    await evictDurableObject(objectStub());
    expect(await env.HOST.getByName(host.hostId).status()).toMatchObject({ connected: true });
    expect(await openSession(host)).toBeDefined();
    expect(await session.stub.execute(call('x'))).toMatchObject({ ok: true });
  });

  test('takes its load to the pool when it matters', async () => {
    const load = { type: 'load', capacity: { sandboxes: 100 }, degraded: false };
    host.sendControl({ ...load, sandboxes: 50 });
    await expect.poll(async () => (await inPool()).sandboxes).toBe(50);
    host.sendControl({ ...load, sandboxes: 51 });
    host.sendControl({ ...load, sandboxes: 51, degraded: true });
    await expect.poll(async () => (await inPool()).sandboxes).toBe(51);
    const place = { image: host.images[0]?.digest ?? '', sessionId: await newId() };
    expect(await env.POOL.getByName('default').place(place)).toMatchObject({ ok: false });
  });

  test.each<[string, Uint8Array]>([
    ['a frame that is none', new Uint8Array([1])],
    ['a type of the other link', encodeFrame({ type: 'started' })],
    ['a second hello', encodeFrame({ type: 'hello' })],
  ])('that brings %s is closed, and the object lives (A57)', async (_name, bytes) => {
    const closed = Promise.withResolvers<number>();
    const socket = await workerTransport.connect(
      '/v1/links/control',
      { authorization: `Bearer ${host.certificate}` },
      { message: () => undefined, closed: (code) => closed.resolve(code) },
    );
    socket.send(bytes);
    expect(await closed.promise).toBe(1008);
    expect(await env.HOST.getByName(host.hostId).status()).toMatchObject({ connected: true });
  });
});

describe('F22 a host of another version', () => {
  const hello = (protocol: number, hostId: string) =>
    encodeFrame({
      type: 'hello',
      protocol,
      host_id: hostId,
      agent_version: 'test',
      runsc_version: 'test',
      runsc_platform: 'none',
      images: [],
      capacity: { sandboxes: 1 },
    });

  async function greet(
    protocol: number,
  ): Promise<{ welcome: ControlLinkDown | undefined; code: number | undefined }> {
    const heard = Promise.withResolvers<{ welcome: ControlLinkDown | undefined; code: number | undefined }>();
    const socket: { current: DoubleSocket | undefined } = { current: undefined };
    const { crypto } = host.identity;
    const answer = async (nonce: string): Promise<void> => {
      const message = proofMessage({
        origin: workerTransport.origin,
        hostId: host.hostId,
        nonce,
        purpose: 'control',
      });
      socket.current?.send(encodeFrame({ type: 'proof', signature: toBase64(await crypto.sign(message)) }));
      socket.current?.send(hello(protocol, host.hostId));
    };
    socket.current = await workerTransport.connect(
      '/v1/links/control',
      { authorization: `Bearer ${host.certificate}` },
      {
        message: (data) => {
          const frame = typeof data === 'string' ? undefined : decodeFrame(data, ControlLinkDownSchema);
          if (frame?.ok !== true) return;
          const { header } = frame.value;
          if (header.type === 'challenge') void answer(header.nonce);
          else heard.resolve({ welcome: header, code: undefined });
        },
        closed: (code) => heard.resolve({ welcome: undefined, code }),
      },
    );
    const outcome = await heard.promise;
    socket.current.close();
    return outcome;
  }

  test('that is older is welcomed in the words that it knows', async () => {
    const { welcome } = await greet(OLDEST_PROTOCOL_VERSION);
    expect(welcome).toMatchObject({ type: 'welcome' });
    expect(welcome).not.toHaveProperty('protocol');
  });

  test('that is newer is welcomed with the version of this edge', async () => {
    const { welcome } = await greet(PROTOCOL_VERSION + 1);
    expect(welcome).toMatchObject({ type: 'welcome', protocol: PROTOCOL_VERSION });
  });

  test('that is too old is refused by a code of its own', async () => {
    expect(await greet(0)).toMatchObject({ welcome: undefined, code: CLOSE_PROTOCOL_UNKNOWN });
  });
});

describe('a control link under a hostile host', () => {
  test('that floods is closed by its own code, and a new one has no fresh allowance (K19)', async () => {
    // However long it takes to read the flood, no allowance comes back meanwhile.
    vi.useFakeTimers({ toFake: ['Date'] });
    const closed = Promise.withResolvers<number>();
    host.onControlClosed = closed.resolve;
    const load = { type: 'load', sandboxes: 1, capacity: { sandboxes: 100 }, degraded: false };
    for (let sent = 0; sent <= CONTROL_LINK_RATE.burstTokens + 1_000; sent += 1) host.sendControl(load);
    expect(await closed.promise).toBe(4029);
    const again = Promise.withResolvers<number>();
    const socket = await workerTransport.connect(
      '/v1/links/control',
      { authorization: `Bearer ${host.certificate}` },
      { message: () => undefined, closed: again.resolve },
    );
    for (let sent = 0; sent < 500; sent += 1) socket.send(encodeFrame(load));
    expect(await again.promise).toBe(4029);
  });

  test('that names a session of nobody wakes no object (K19)', async () => {
    const before = (await listDurableObjectIds(env.SESSION)).length;
    const closed = Promise.withResolvers<number>();
    host.onControlClosed = closed.resolve;
    host.sendControl({
      type: 'destroyed',
      session_id: `ses_${'a'.repeat(38)}`,
      tenant: 'acme',
      epoch: 1,
    });
    expect(await closed.promise).toBe(1008);
    expect(await listDurableObjectIds(env.SESSION)).toHaveLength(before);
  });
});

describe('a host whose clock is off (F29)', () => {
  test.each([31_000, -31_000, 600_000])('by %i ms gets no sessions, and it is shown why', async (aheadMs) => {
    host.clockAheadMs = aheadMs;
    await host.connect();
    await expect.poll(async () => (await inPool()).faults).toEqual(['clock_skew']);
    expect(Math.abs((host.edgeTimeMs ?? 0) - Date.now())).toBeLessThan(30_000);
    const place = { image: host.images[0]?.digest ?? '', sessionId: await newId() };
    const placed = await env.POOL.getByName('default').place(place);
    expect(placed.ok && placed.value.hostId).not.toBe(host.hostId);
  });

  test('takes sessions again once its clock is set', async () => {
    host.clockAheadMs = 600_000;
    await host.connect();
    await expect.poll(async () => (await inPool()).faults).toEqual(['clock_skew']);
    const load = { type: 'load', sandboxes: 0, capacity: { sandboxes: 100 }, degraded: false };
    host.sendControl({ ...load, host_time_ms: Date.now() + 5_000 });
    await expect.poll(async () => (await inPool()).faults).toEqual([]);
  });

  test.each([29_000, -29_000])('by no more than grants allow (%i ms) is like any other', async (aheadMs) => {
    host.clockAheadMs = aheadMs;
    await host.connect();
    expect((await inPool()).faults).toEqual([]);
  });
});

describe('a host whose receipts are refused', () => {
  const refused = (times: number) =>
    Promise.all(Array.from({ length: times }, () => env.HOST.getByName(host.hostId).receiptRefused()));

  test('again and again gets no more sessions, until it enrols anew', async () => {
    await refused(4);
    expect((await inPool()).faults).toEqual([]);
    await refused(1);
    expect((await inPool()).faults).toEqual(['receipts_refused']);
    await host.connect();
    expect((await inPool()).faults).toEqual(['receipts_refused']);
  });
});

describe('a host that goes silent', () => {
  test('is suspect at once when its link is cut, dead 45 s later, and its sessions hear of it', async () => {
    const session = await openSession(host);
    host.close();
    await expect.poll(async () => (await inPool()).state).toBe('suspect');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 46_000 });
    await runDurableObjectAlarm(objectStub());
    expect((await inPool()).state).toBe('dead');
    await eventually(async () => {
      await runDurableObjectAlarm(objectStub());
      expect(await session.stub.describe(caller)).toMatchObject({ value: { error: { code: 'host_lost' } } });
    });
  });

  test('is told to every session, though many do not answer', async () => {
    const session = await openSession(host);
    await runInDurableObject(objectStub(), (_object, { storage }) => {
      for (let n = 10; n < 50; n += 1) {
        storage.sql.exec("INSERT INTO session VALUES ('acme', ?)", `ses_${'-'.repeat(36)}${n}`);
      }
    });
    host.close();
    await expect.poll(async () => (await inPool()).state).toBe('suspect');
    const asked = vi.spyOn(env.SESSION, 'getByName');
    for (let n = 0; n < 40; n += 1) {
      asked.mockImplementationOnce(() => {
        throw new Error('does not answer');
      });
    }
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 46_000 });
    for (let round = 0; round < 3; round += 1) await runDurableObjectAlarm(objectStub());
    expect(asked.mock.calls).toHaveLength(41);
    asked.mockRestore();
    expect(await session.stub.describe(caller)).toMatchObject({ value: { error: { code: 'host_lost' } } });
  });

  test('that went with the edge itself, so that no close was ever seen, is dead all the same', async () => {
    host.close();
    await expect.poll(async () => (await inPool()).state).toBe('suspect');
    await runInDurableObject(objectStub(), (_object, { storage }) => {
      storage.sql.exec('UPDATE host SET disconnected_at = NULL');
    });
    await runDurableObjectAlarm(objectStub());
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 46_000 });
    await runDurableObjectAlarm(objectStub());
    expect((await inPool()).state).toBe('dead');
  });

  test('that ended its sandbox for want of a lease: the session goes on with a new one', async () => {
    const session = await openSession(host);
    host.session(session.id).send({ type: 'sandbox_lost', reason: 'lease_lost' });
    expect(await session.stub.execute(call('x'))).toMatchObject({
      ok: true,
      value: { status: 'succeeded', state_lost: true },
    });
  });

  test('that comes back in time keeps its sessions', async () => {
    const session = await openSession(host);
    host.dropControl();
    await expect.poll(async () => (await inPool()).state).toBe('suspect');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 30_000 });
    await runDurableObjectAlarm(objectStub());
    await host.connect();
    expect((await inPool()).state).toBe('connected');
    expect(await session.stub.execute(call('x'))).toMatchObject({ ok: true, value: { status: 'succeeded' } });
  });

  test.each([
    [0, true, 'connected', 20_000],
    [19_999, true, 'connected', 20_000],
    [20_000, true, 'suspect', 45_000],
    [44_999, false, 'suspect', 45_000],
    [45_000, true, 'dead', null],
    [1_000, false, 'suspect', 20_000],
  ] as const)('after %i ms with a link: %s is %s', (nowMs, hasLink, state, checkAtMs) => {
    expect(livenessOf(0, hasLink, nowMs)).toEqual({ state, checkAtMs });
  });
});

describe('a load report', () => {
  const reported = { atMs: 0, sandboxes: 10, capacity: 100, degraded: false, skewed: false };
  test.each([
    ['a small change', { sandboxes: 12 }, 1_000, false],
    ['a change above a tenth', { sandboxes: 21 }, 1_000, true],
    ['any change near the end of its room', { sandboxes: 95 }, 1_000, true],
    ['another capacity', { capacity: 50 }, 1_000, true],
    ['a fault', { degraded: true }, 1_000, true],
    ['a clock that is off', { skewed: true }, 1_000, true],
    ['nothing for half a minute', {}, 30_000, true],
  ])('of %s is %s', (_name, change, nowMs, worth) => {
    const load = { sandboxes: 10, capacity: 100, degraded: false, skewed: false, ...change };
    expect(isWorthReporting(load, reported, nowMs)).toBe(worth);
  });
});
