import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { PoolObject } from '../../../../worker/objects/pool/object.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';

let host: HostDouble;
beforeEach(async () => {
  host = await connectFakeHost();
});
afterEach(() => {
  vi.restoreAllMocks();
  host.close();
});

test.each([
  { protocol: 1, times: [0, 50] },
  { protocol: 2, times: [0] },
])(
  'F18 a host of version $protocol that comes back is told of to its pool $times.length times, whatever it says of its load meanwhile',
  async ({ protocol, times }) => {
    host.protocol = protocol;
    const told = vi.spyOn(PoolObject.prototype, 'reportHost');
    host.dropControl();
    await expect.poll(() => told.mock.lastCall?.[0].state).toBe('suspect');
    told.mockClear();
    await host.connect();
    const sandboxes = times.at(-1) ?? 0;
    const load = { type: 'load', capacity: { sandboxes: host.capacity }, degraded: false, sandboxes };
    for (let count = 0; count < 3; count += 1) host.sendControl(load);
    const images = [{ name: 'later', digest: `sha256:${'d'.repeat(64)}` }];
    host.sendControl({ type: 'images', images });
    // What comes behind them has been heard by then.
    await expect.poll(() => told.mock.lastCall?.[0].images).toEqual(images);
    const returned = told.mock.calls.map(([report]) => report).slice(0, -1);
    expect(returned.map(({ state, sandboxes: seen }) => [state, seen])).toEqual(
      times.map((seen) => ['connected', seen]),
    );
  },
);

describe('the pool of many hosts', () => {
  /** All that hosts draw is this. */
  async function ofMany(random: number) {
    const told = vi
      .spyOn(PoolObject.prototype, 'reportHost')
      .mockImplementation(async () => ({ hosts: 200 }));
    host.sendControl({ type: 'load', capacity: { sandboxes: host.capacity }, degraded: true, sandboxes: 0 });
    await expect.poll(() => told.mock.lastCall?.[0].degraded).toBe(true);
    // The answer has been written down when the next one was asked for.
    host.sendControl({ type: 'load', capacity: { sandboxes: host.capacity }, degraded: false, sandboxes: 0 });
    await expect.poll(() => told.mock.lastCall?.[0].degraded).toBe(false);
    told.mockClear();
    vi.spyOn(Math, 'random').mockReturnValue(random);
    return told;
  }

  test('F18 hears nothing of a link that ended where its host is back soon', async () => {
    const told = await ofMany(0.999);
    host.dropControl();
    await expect.poll(async () => (await env.HOST.getByName(host.hostId).status()).connected).toBe(false);
    await host.connect();
    await expect.poll(() => told.mock.calls.length).toBe(1);
    expect(told.mock.calls.map(([{ state }]) => state)).toEqual(['connected']);
  });

  test('F18 hears of a link that ended where its host stays away, with what it had', async () => {
    const told = await ofMany(0.05);
    const endedAtMs = performance.now();
    host.dropControl();
    await expect.poll(() => told.mock.calls.length).toBe(1);
    expect(performance.now() - endedAtMs).toBeGreaterThan(300);
    expect(told.mock.calls[0]?.[0]).toMatchObject({ state: 'suspect', capacity: host.capacity });
  });

  test('hears nothing more of a host that was revoked meanwhile', async () => {
    const other = await connectFakeHost();
    const told = await ofMany(0.05);
    other.sendControl({ type: 'load', capacity: { sandboxes: 1 }, degraded: false, sandboxes: 0 });
    await expect.poll(() => told.mock.lastCall?.[0].hostId).toBe(other.hostId);
    host.dropControl();
    const revoked = env.HOST.getByName(host.hostId);
    await expect.poll(async () => (await revoked.status()).connected).toBe(false);
    await revoked.revoke({ hostId: host.hostId, pool: 'default' });
    // What is told of it would be told before this.
    other.dropControl();
    await expect.poll(() => told.mock.lastCall?.[0].state).toBe('suspect');
    expect(told.mock.calls.map(([{ hostId }]) => hostId)).toEqual([other.hostId, other.hostId]);
    other.close();
  });
});
