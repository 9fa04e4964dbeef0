import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type WarmKind, WarmPool, type WarmPoolOptions } from '../../../host-agent/pool/warm-pool.ts';
import { DEFAULT_RESOURCE_LIMITS } from '../../../shared/limits.ts';

interface Item {
  number: number;
  kind: WarmKind;
  lost: Promise<unknown>;
  lose: () => void;
}

const USUAL: WarmKind = { imageDigest: 'sha256:usual', limits: { ...DEFAULT_RESOURCE_LIMITS } };
const OTHER: WarmKind = { ...USUAL, limits: { ...USUAL.limits, cpus: 2 } };

let made: Item[];
let discarded: number[];
let silent: Set<number>;
let busy: boolean;
let fails: boolean;
let mostAtOnce: number;
let pools: WarmPool<Item>[];

function poolOf(options: Partial<WarmPoolOptions<Item>>): WarmPool<Item> {
  let making = 0;
  const pool = new WarmPool<Item>({
    floor: 0,
    ceiling: 4,
    parallel: 1,
    usualKind: async () => USUAL,
    make: async (kind) => {
      making += 1;
      mostAtOnce = Math.max(mostAtOnce, making);
      await new Promise((resolve) => setTimeout(resolve, 100));
      making -= 1;
      if (fails) return undefined;
      const { promise, resolve } = Promise.withResolvers<void>();
      const item = { number: made.length, kind, lost: promise, lose: resolve };
      made.push(item);
      return item;
    },
    discard: async ({ number }) => void discarded.push(number),
    isUsable: async ({ number }) => !silent.has(number),
    mayMake: () => !busy,
    nowMs: () => Date.now(),
    ...options,
  });
  pools.push(pool);
  return pool;
}

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers();
  made = [];
  discarded = [];
  pools = [];
  silent = new Set();
  busy = fails = false;
  mostAtOnce = 0;
});
afterEach(async () => {
  const stopped = Promise.all(pools.map((pool) => pool.stop()));
  await pass(1_000);
  await stopped;
  vi.useRealTimers();
});

describe('WarmPool', () => {
  it('keeps its floor of the usual kind and makes another one at once for each that is taken', async () => {
    const pool = poolOf({ floor: 2 });
    await pool.start();
    await pass(200);
    expect(pool.readyCount).toBe(2);
    expect((await pool.take(USUAL))?.number).toBe(0);
    expect(pool.readyCount).toBe(1);
    await pass(100);
    expect(pool.readyCount).toBe(2);
  });

  it('hands each over once', async () => {
    const pool = poolOf({ floor: 3 });
    await pool.start();
    await pass(300);
    const taken = await Promise.all(Array.from({ length: 5 }, () => pool.take(USUAL)));
    expect(taken.map((item) => item?.number)).toEqual([0, 1, 2, undefined, undefined]);
  });

  it('gives nobody one of other sizes or another image', async () => {
    const pool = poolOf({ floor: 1 });
    await pool.start();
    await pass(100);
    expect(await pool.take(OTHER)).toBeUndefined();
    expect(await pool.take({ ...USUAL, imageDigest: 'sha256:other' })).toBeUndefined();
    expect(await pool.take(USUAL)).toBeDefined();
  });

  it('lets go those of an image that is gone, also the one that is being made, and keeps its floor of another', async () => {
    const next: WarmKind = { ...USUAL, imageDigest: 'sha256:next' };
    let usual = USUAL;
    const pool = poolOf({ floor: 2, ceiling: 4, usualKind: async () => usual });
    await pool.start();
    await pass(150);
    expect(pool.readyCount).toBe(1);
    usual = next;
    pool.keepOnly(({ imageDigest }) => imageDigest === next.imageDigest);
    await pass(1_000);
    expect(discarded).toEqual([0, 1]);
    expect(await pool.take(USUAL)).toBeUndefined();
    expect(await pool.take(next)).toBeDefined();
    expect(await pool.take(next)).toBeDefined();
  });

  it('follows demand up to the ceiling, and down again to the floor', async () => {
    const pool = poolOf({ floor: 1, ceiling: 3 });
    await pool.start();
    for (let count = 0; count < 6; count += 1) await pool.take(USUAL);
    await pass(1_000);
    expect(pool.readyCount).toBe(3);
    await pass(320_000);
    expect(pool.readyCount).toBe(1);
    expect(discarded).toEqual([0, 1]);
  });

  it('makes what others asked for too, and lets it go when nobody comes again', async () => {
    const pool = poolOf({ ceiling: 3 });
    await pool.start();
    await pool.take(OTHER);
    await pass(100);
    expect((await pool.take(OTHER))?.kind).toEqual(OTHER);
    await pass(330_000);
    expect(pool.readyCount).toBe(0);
  });

  it('makes no more at the same time than it may', async () => {
    const pool = poolOf({ floor: 4, parallel: 2 });
    await pool.start();
    await pass(1_000);
    expect(pool.readyCount).toBe(4);
    expect(mostAtOnce).toBe(2);
  });

  it('waits while a session waits for a sandbox that is not ready', async () => {
    busy = true;
    const pool = poolOf({ floor: 1 });
    await pool.start();
    await pass(1_000);
    expect(made).toEqual([]);
    busy = false;
    pool.refill();
    await pass(100);
    expect(pool.readyCount).toBe(1);
  });

  it('never hands over what was lost, and replaces it', async () => {
    const pool = poolOf({ floor: 1 });
    await pool.start();
    await pass(100);
    made[0]?.lose();
    await pass(0);
    expect(await pool.take(USUAL)).toBeUndefined();
    await pass(200);
    expect((await pool.take(USUAL))?.number).toBe(1);
  });

  it('hands over the first that answers, and replaces those that do not', async () => {
    const pool = poolOf({ floor: 3 });
    await pool.start();
    await pass(300);
    silent = new Set([0, 1]);
    expect((await pool.take(USUAL))?.number).toBe(2);
    expect(discarded).toEqual([0, 1]);
    await pass(300);
    expect(pool.readyCount).toBe(3);
    silent = new Set([3, 4, 5]);
    expect(await pool.take(USUAL)).toBeUndefined();
    expect(discarded).toEqual([0, 1, 3, 4, 5]);
  });

  it('pauses after a failure', async () => {
    fails = true;
    const pool = poolOf({ floor: 1 });
    await pool.start();
    await pass(5_000);
    expect(mostAtOnce).toBe(1);
    expect(pool.makingCount).toBe(0);
    fails = false;
    await pass(20_000);
    expect(pool.readyCount).toBe(1);
  });

  it('does not try again what could not be made until somebody asks for it', async () => {
    let tries = 0;
    const pool = poolOf({
      make: async () => {
        tries += 1;
        return undefined;
      },
    });
    await pool.start();
    await pool.take(OTHER);
    await pass(60_000);
    expect(tries).toBe(1);
    await pool.take(OTHER);
    await pass(0);
    expect(tries).toBe(2);
  });

  it('gives room back, the usual kind last, and does not take it again at once', async () => {
    const pool = poolOf({ floor: 1, ceiling: 2 });
    await pool.take(OTHER);
    await pool.start();
    await pass(300);
    expect(pool.readyCount).toBe(2);
    expect(await pool.evict(1)).toBe(1);
    await pass(1_000);
    expect(pool.readyCount).toBe(1);
    expect(await pool.take(USUAL)).toBeDefined();
    expect(await pool.evict(5)).toBe(0);
  });

  it('remembers a bounded number of kinds', async () => {
    const pool = poolOf({ floor: 1, ceiling: 100 });
    await pool.start();
    for (let cpus = 1; cpus <= 40; cpus += 1)
      await pool.take({ ...USUAL, limits: { ...USUAL.limits, cpus } });
    await pass(10_000);
    expect(pool.readyCount).toBeLessThanOrEqual(17);
    expect(await pool.take(USUAL)).toBeDefined();
  });

  it('is empty when it has stopped, also of what was being made', async () => {
    const pool = poolOf({ floor: 2 });
    await pool.start();
    await pass(150);
    const stopped = pool.stop();
    await pass(100);
    await stopped;
    expect(discarded).toEqual([0, 1]);
    expect(await pool.take(USUAL)).toBeUndefined();
    await pass(100_000);
    expect(made.length).toBe(2);
  });
});
