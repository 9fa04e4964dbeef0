import { describe, expect, test } from 'vitest';
import { fairCap } from '../../../worker/load/fair-cap.ts';
import { FEW, Shedding } from '../../../worker/load/shedding.ts';
import { CAPACITY_PER_S, type Outcome, SimulatedIsolate, type Stream } from './simulated-isolate.ts';

const MEASURED_S = 12;
const SPAN = { forMs: 20_000, countFromMs: 8_000 };
const flood = (times: number): Stream => ({
  tenant: 'loud',
  subject: 'one',
  perSecond: CAPACITY_PER_S * times,
});
const quiet: Stream = { tenant: 'quiet', subject: 'one', perSecond: 30 };

function simulate(streams: readonly Stream[], span = SPAN): SimulatedIsolate {
  const isolate = new SimulatedIsolate();
  isolate.run(streams, span);
  return isolate;
}

const perSecond = ({ answered }: Outcome) => answered / MEASURED_S;

function medianMs({ latenciesMs }: Outcome): number {
  const sorted = latenciesMs.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

describe('an isolate that is asked for more than it can do', () => {
  test('refuses nothing while it can do what it is asked', () => {
    const outcome = simulate([flood(0.9)]).outcomeOf('loud/one');
    expect(outcome.refused).toBe(0);
    expect(perSecond(outcome)).toBeGreaterThan(CAPACITY_PER_S * 0.89);
  });

  test.each([1.5, 2, 5])('does at %d times its load nearly all that it can, and each in time', (times) => {
    const outcome = simulate([flood(times)]).outcomeOf('loud/one');
    expect(perSecond(outcome)).toBeGreaterThanOrEqual(CAPACITY_PER_S * 0.9);
    // Alone, a request takes 12 ms; without a bound those of a flood would wait for seconds.
    expect(medianMs(outcome)).toBeLessThan(130);
  });

  test('without a bound does nothing in time: what these tests compare with', () => {
    const isolate = new SimulatedIsolate({ admit: () => () => undefined });
    isolate.run([flood(5)], SPAN);
    const { latenciesMs } = isolate.outcomeOf('loud/one');
    expect(latenciesMs.filter((latencyMs) => latencyMs < 1_000)).toEqual([]);
  });

  test('lets nobody pay for a tenant that floods it, nor for a subject within that tenant', () => {
    const beside: Stream = { tenant: 'loud', subject: 'two', perSecond: 30 };
    const isolate = simulate([flood(5), quiet, beside]);
    for (const name of ['quiet/one', 'loud/two']) {
      const outcome = isolate.outcomeOf(name);
      expect(outcome.refused, name).toBe(0);
      expect(perSecond(outcome), name).toBeGreaterThan(29);
      expect(medianMs(outcome), name).toBeLessThan(130);
    }
  });

  test('gives two that flood it the same, however much one asks for', () => {
    const isolate = simulate([flood(5), { ...flood(2), tenant: 'other' }]);
    const [loud, other] = ['loud/one', 'other/one'].map((name) => perSecond(isolate.outcomeOf(name)));
    expect(Math.abs((loud ?? 0) - (other ?? 0))).toBeLessThan(CAPACITY_PER_S * 0.1);
  });

  test('lets everything in again when the flood is over', () => {
    const isolate = simulate([
      { ...flood(5), toMs: 7_000 },
      { ...flood(0.8), tenant: 'after', fromMs: 10_000 },
    ]);
    expect(isolate.outcomeOf('after/one').refused).toBe(0);
  });
});

describe('a bound on what is under way', () => {
  test('is no bound on a burst, nor on calls that wait for their programs', () => {
    const shedding = new Shedding();
    const asking = { tenant: 'acme', subject: 'alice' };
    const burst = Array.from({ length: 1_000 }, () => shedding.admit(asking, 0, false));
    expect(burst.filter((answered) => answered === undefined)).toEqual([]);
    // Late for two seconds, with a thousand older calls that are still waited for and few new ones.
    for (let nowMs = 3_000; nowMs < 5_000; nowMs += 150) {
      expect(shedding.admit(asking, nowMs, true)).toBeDefined();
    }
  });

  test('begins when the isolate was late for longer than a burst, and never refuses the first few', () => {
    const shedding = new Shedding();
    const asking = { tenant: 'acme', subject: 'alice' };
    for (let nowMs = 0; nowMs < 1_000; nowMs += 20) {
      expect(shedding.admit(asking, nowMs, true), `at ${nowMs} ms`).toBeDefined();
    }
    expect(shedding.admit(asking, 1_010, true)).toBeUndefined();
    const other = { tenant: 'other', subject: 'bob' };
    const admitted = Array.from({ length: 3 * FEW }, () => shedding.admit(other, 1_020, true));
    expect(admitted.filter((answered) => answered !== undefined)).toHaveLength(FEW);
    // One that was answered makes room for one.
    admitted[0]?.();
    expect(shedding.admit(other, 1_030, true)).toBeDefined();
    expect(shedding.admit(other, 1_030, true)).toBeUndefined();
  });
});

test.each([
  [[100], 10, 10],
  [[100, 2], 10, 8],
  [[100, 100], 10, 5],
  [[1, 1, 100, 100], 10, 4],
  [[1, 2, 3], 10, 10],
  [[], 10, 10],
  // Everybody may have one, however many there are.
  [[100, 100, 100, 100], 2, 1],
])('of what %j ask for, with %d places, each may have %d', (demands, places, cap) => {
  expect(fairCap(demands, places)).toBe(cap);
});
