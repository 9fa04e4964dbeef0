import { describe, expect, test } from 'vitest';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { HostRow } from '../../../worker/objects/pool/store.ts';
import { MANY_HOSTS, PoolPictures } from '../../../worker/placement/pool-pictures.ts';

const DIGEST = `sha256:${'1'.repeat(64)}`;
const wish = { image: 'python' };

function hostsOf(count: number, facts: Partial<HostRow> = {}): HostRow[] {
  return Array.from({ length: count }, (_, index) => ({
    host_id: `h${index}`,
    pool: 'default',
    state: 'connected' as const,
    sandboxes: 0,
    placed: 0,
    capacity: 200,
    degraded: false,
    images: [{ name: 'python', digest: DIGEST }],
    faults: [],
    traits: null,
    last_seen_at: 1,
    ...facts,
  }));
}

describe("an isolate's picture of a large pool", () => {
  test('is taken once for all who ask while it is fresh, and anew after three seconds', async () => {
    const pictures = new PoolPictures();
    let taken = 0;
    const place = (nowMs: number) =>
      pictures.place('default', wish, {
        nowMs,
        random: Math.random,
        hosts: async () => {
          taken += 1;
          return success(hostsOf(50));
        },
      });
    await place(1_000);
    await Promise.all(Array.from({ length: 100 }, () => place(2_000)));
    expect(taken).toBe(1);
    await place(4_001);
    expect(taken).toBe(2);
  });

  test('is the later one of two, whichever question is answered last', async () => {
    const pictures = new PoolPictures();
    const early = Promise.withResolvers<Outcome<HostRow[]>>();
    const place = (nowMs: number, hosts: () => Promise<Outcome<HostRow[]>>) =>
      pictures.place('default', wish, { nowMs, random: () => 0, hosts });
    const first = place(1_000, () => early.promise);
    expect(await place(2_500, async () => success(hostsOf(1, { host_id: 'late' })))).toMatchObject({
      ok: true,
    });
    early.resolve(success(hostsOf(1, { host_id: 'early' })));
    await first;
    const third = await place(2_600, async () => failure('no_host_available', 'asked once more'));
    expect(third).toMatchObject({ ok: true, value: { hostId: 'late' } });
  });

  test('counts what it has placed itself', async () => {
    const pictures = new PoolPictures();
    const hosts = hostsOf(2, { capacity: 1 });
    const place = () =>
      pictures.place('default', wish, { nowMs: 1, random: Math.random, hosts: async () => success(hosts) });
    const chosen = [await place(), await place(), await place()];
    expect(new Set(chosen.slice(0, 2).map((one) => one.ok && one.value.hostId)).size).toBe(2);
    expect(chosen[2]).toMatchObject({ ok: false, code: 'no_host_available' });
  });

  test('knows of a host that refused, until the next picture is taken', async () => {
    const pictures = new PoolPictures();
    const place = (nowMs: number) =>
      pictures.place('default', wish, { nowMs, random: () => 0, hosts: async () => success(hostsOf(1)) });
    expect(await place(1)).toMatchObject({ ok: true, value: { hostId: 'h0' } });
    pictures.refusedBy('default', 'h0');
    expect(await place(2)).toMatchObject({ ok: false, code: 'no_host_available' });
    expect(await place(10_000)).toMatchObject({ ok: true });
  });

  test('that could not be taken is asked for again', async () => {
    const pictures = new PoolPictures();
    const answers = [failure('object_reset', 'gone'), success(hostsOf(40))];
    const place = () =>
      pictures.place('default', wish, {
        nowMs: 1,
        random: Math.random,
        hosts: async () => answers.shift() ?? failure('internal', 'too often'),
      });
    expect(await place()).toMatchObject({ ok: false, code: 'object_reset' });
    expect(await place()).toMatchObject({ ok: true });
  });

  test('is for pools with many hosts alone', () => {
    const pictures = new PoolPictures();
    pictures.heardOf('small', MANY_HOSTS - 1);
    pictures.heardOf('large', MANY_HOSTS);
    expect([pictures.isLarge('small'), pictures.isLarge('large')]).toEqual([false, true]);
    pictures.heardOf('large', 3);
    expect(pictures.isLarge('large')).toBe(false);
  });
});

/** Each isolate has a picture of its own, and none of them knows of what the others place meanwhile. */
test('sends a session to at most three hosts in 99 of 100 cases, in a pool that is 95 % full', async () => {
  let seed = 20_261_130;
  const random = (): number => {
    seed = (seed * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return seed / 2 ** 32;
  };
  const CAPACITY = 200;
  const HOSTS = 200;
  const FULL = HOSTS * CAPACITY * 0.95;
  // Two creates a second and host.
  const CREATES_PER_S = 2 * HOSTS;
  const truth = hostsOf(HOSTS, { capacity: CAPACITY, sandboxes: 0 });
  const where: HostRow[] = [];
  const isolates = Array.from({ length: 40 }, () => new PoolPictures());
  const tries: number[] = [];
  for (let session = 0; session < 2 * FULL; session += 1) {
    const isolate = isolates[Math.floor(random() * isolates.length)];
    if (isolate === undefined) throw new Error('no isolate');
    const source = {
      nowMs: (session * 1_000) / CREATES_PER_S,
      random,
      hosts: async () => success(truth.map((host) => ({ ...host }))),
    };
    const except: string[] = [];
    for (;;) {
      const placed = await isolate.place('default', { ...wish, except }, source);
      const host = placed.ok ? truth.find(({ host_id }) => host_id === placed.value.hostId) : undefined;
      if (host === undefined) throw new Error('a host with room was expected');
      if (host.sandboxes < CAPACITY) {
        host.sandboxes += 1;
        where.push(host);
        break;
      }
      except.push(host.host_id);
    }
    tries.push(except.length + 1);
    if (where.length < FULL) continue;
    const leaver = Math.floor(random() * where.length);
    const [left] = where.splice(leaver, 1, ...where.splice(-1));
    if (left !== undefined) left.sandboxes -= 1;
  }
  tries.sort((left, right) => left - right);
  expect(tries[Math.floor(tries.length * 0.99)]).toBeLessThanOrEqual(3);
  const fills = truth.map(({ sandboxes }) => sandboxes / CAPACITY);
  expect(Math.min(...fills)).toBeGreaterThan(0.85);
});
