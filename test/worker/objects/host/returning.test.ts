import { afterEach, beforeEach, expect, test, vi } from 'vitest';
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

test('F18 a host that comes back is told of to its pool twice, whatever it says of its load meanwhile', async () => {
  const told = vi.spyOn(PoolObject.prototype, 'reportHost');
  host.dropControl();
  await expect.poll(() => told.mock.lastCall?.[0].state).toBe('suspect');
  told.mockClear();
  await host.connect();
  const sandboxes = host.capacity / 2;
  const load = { type: 'load', capacity: { sandboxes: host.capacity }, degraded: false, sandboxes };
  for (let times = 0; times < 3; times += 1) host.sendControl(load);
  const images = [{ name: 'later', digest: `sha256:${'d'.repeat(64)}` }];
  host.sendControl({ type: 'images', images });
  // What comes behind them has been heard by then.
  await expect.poll(() => told.mock.lastCall?.[0].images).toEqual(images);
  const returned = told.mock.calls.map(([report]) => report).slice(0, -1);
  expect(returned.map(({ state, sandboxes: seen }) => [state, seen])).toEqual([
    ['connected', 0],
    ['connected', sandboxes],
  ]);
});
