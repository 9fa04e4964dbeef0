/**
 * F18 computed: hosts whose links end in one moment, each with the delays of a real agent and of its own object, in simulated
 * time, on top of all that the object of their pool has to do for those that are linked.
 */
import { describe, expect, test } from 'vitest';
import { CONTROL_BASE_DELAY_MS, reconnectDelayMs } from '../../../host-agent/edge/reconnect-delay.ts';
import { suspicionDelayMs } from '../../../worker/objects/host/suspicion.ts';
import { CEILING_PER_S, poolLoadsAt, WHOLE } from './model.ts';

const { hostsPerPool: HOSTS_PER_POOL } = WHOLE;
const SESSIONS_PER_HOST = 200;
const STEP_MS = 50;
/** `hello` says what the load right behind it says. `test/worker/objects/host/` counts them on a real object. */
const POOL_REPORTS_PER_RETURN = 1;
/** The edge asks the object of the host whether it was revoked, opens the link there, and has proof, `hello` and load. */
const HOST_REQUESTS_PER_RETURN = 5;
const HOST_REQUESTS_PER_SESSION_LINK = 1;

/** The same sequence each time. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** When a link is up again that is lost at 0, with an edge that is not there for so long. */
function returnAtMs(
  outageMs: number,
  random: () => number,
  baseMs?: number,
): { atMs: number; attempts: number } {
  let atMs = 0;
  for (let attempts = 0; ; attempts += 1) {
    atMs += reconnectDelayMs(attempts, random, baseMs);
    if (atMs >= outageMs) return { atMs, attempts: attempts + 1 };
  }
}

/** The most of them within so long, wherever that begins. */
function peakWithin(windowMs: number, timesMs: readonly number[]): number {
  const times = timesMs.toSorted((a, b) => a - b);
  let first = 0;
  let peak = 0;
  for (const [last, atMs] of times.entries()) {
    while (atMs - (times[first] ?? atMs) >= windowMs) first += 1;
    peak = Math.max(peak, last - first + 1);
  }
  return peak;
}

/** Requests in the busiest second to the object of one pool, all of whose hosts lose their links at 0. */
function poolPeakPerS(returnsMs: readonly number[], suspicionsMs: readonly number[]): number {
  const { ofEachHost, placing } = poolLoadsAt(WHOLE);
  const within = (timesMs: readonly number[], fromMs: number) =>
    timesMs.filter((atMs) => atMs >= fromMs && atMs < fromMs + 1_000).length;
  let peak = 0;
  for (let fromMs = 0; fromMs <= Math.max(...returnsMs); fromMs += STEP_MS) {
    const linked = returnsMs.filter((atMs) => atMs < fromMs + 500).length;
    const told = within(returnsMs, fromMs) * POOL_REPORTS_PER_RETURN + within(suspicionsMs, fromMs);
    peak = Math.max(peak, told + linked * ofEachHost + placing);
  }
  return Math.round(peak);
}

/** Of those that are not back by then. */
function suspicionsOf(returnsMs: readonly number[], delayMs: () => number): number[] {
  return returnsMs.flatMap((backAtMs) => {
    const toldAtMs = delayMs();
    return toldAtMs < backAtMs ? [toldAtMs] : [];
  });
}

function storm(hosts: number, outageMs: number) {
  const random = seeded(hosts + outageMs);
  const control = Array.from({ length: hosts }, () => returnAtMs(outageMs, random, CONTROL_BASE_DELAY_MS));
  const pools = Array.from({ length: hosts / HOSTS_PER_POOL }, (_, pool) =>
    control.slice(pool * HOSTS_PER_POOL, (pool + 1) * HOSTS_PER_POOL).map(({ atMs }) => atMs),
  );
  const sessionLinks = Array.from({ length: SESSIONS_PER_HOST }, () => returnAtMs(outageMs, random).atMs);
  return {
    backAfterMs: Math.max(...control.map(({ atMs }) => atMs)) - outageMs,
    attempts: Math.max(...control.map(({ attempts }) => attempts)),
    pool: Math.max(
      ...pools.map((returnsMs) =>
        poolPeakPerS(
          returnsMs,
          suspicionsOf(returnsMs, () => suspicionDelayMs(HOSTS_PER_POOL, random)),
        ),
      ),
    ),
    host: HOST_REQUESTS_PER_RETURN + peakPerS(sessionLinks) * HOST_REQUESTS_PER_SESSION_LINK,
    inOneTenth: peakWithin(
      100,
      control.map(({ atMs }) => atMs),
    ),
  };
}

const peakPerS = (timesMs: readonly number[]) => peakWithin(1_000, timesMs);

describe.each([1_000, 5_000])('F18 %i hosts that come back at once', (hosts) => {
  test.each([
    ['drops their links', 0],
    ['cannot be reached for a second', 1_000],
    ['cannot be reached for five seconds', 5_000],
    ['cannot be reached for a minute', 60_000],
  ])('bring no object above 300 requests a second where the edge %s', (_name, outageMs) => {
    const seen = storm(hosts, outageMs);
    console.log(`${hosts} hosts, ${outageMs} ms: ${JSON.stringify(seen)}`);
    expect(seen.pool).toBeLessThanOrEqual(CEILING_PER_S);
    expect(seen.host).toBeLessThanOrEqual(CEILING_PER_S);
    // Full jitter: they do not come in the same moment.
    expect(seen.inOneTenth).toBeLessThan(hosts / 8);
    // All of them are back, none later than the longest delay there is.
    expect(seen.backAfterMs).toBeLessThanOrEqual(20_000);
    expect(seen.attempts).toBeLessThan(30);
  });
});

describe('what keeps a pool below that', () => {
  const returnsOf = (random: () => number, baseMs?: number) =>
    Array.from({ length: HOSTS_PER_POOL }, () => returnAtMs(0, random, baseMs).atMs);

  test('is the spread of control links', () => {
    expect(poolPeakPerS(returnsOf(seeded(1)), [])).toBeGreaterThan(CEILING_PER_S);
  });

  test('is that it hears of ends one after the other', () => {
    const returnsMs = returnsOf(seeded(1), CONTROL_BASE_DELAY_MS);
    expect(
      poolPeakPerS(
        returnsMs,
        suspicionsOf(returnsMs, () => 0),
      ),
    ).toBeGreaterThan(CEILING_PER_S);
  });
});
