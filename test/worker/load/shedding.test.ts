import { describe, expect, test } from 'vitest';
import { fairCap } from '../../../worker/load/fair-cap.ts';
import { BURST_REQUESTS, FEW, Shedding, WINDOW_MS } from '../../../worker/load/shedding.ts';
import {
  CAPACITY_PER_S,
  leftBesideRefusals,
  type Outcome,
  SimulatedIsolate,
  type Stream,
} from './simulated-isolate.ts';

const MEASURED_S = 12;
/** Alone, a request takes 27 ms; without a bound those of a flood would wait for seconds. */
const IN_TIME_MS = 180;
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

  test.each([1.5, 2, 5])(
    'does at %d times its load nearly all that refusing leaves, and each in time',
    (times) => {
      const outcome = simulate([flood(times)]).outcomeOf('loud/one');
      expect(perSecond(outcome)).toBeGreaterThanOrEqual(CAPACITY_PER_S * leftBesideRefusals(times) * 0.95);
      expect(medianMs(outcome)).toBeLessThan(IN_TIME_MS);
    },
  );

  test('lets nobody in who would wait for longer than what came as a burst before', () => {
    const { latenciesMs } = simulate([flood(5)], { forMs: 6_000, countFromMs: 0 }).outcomeOf('loud/one');
    expect(Math.max(...latenciesMs)).toBeLessThan((2 * BURST_REQUESTS * 1_000) / CAPACITY_PER_S);
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
      expect(medianMs(outcome), name).toBeLessThan(IN_TIME_MS);
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

  test('begins sooner where more come than a burst has, but not for a hiccup', () => {
    const shedding = new Shedding();
    const asking = { tenant: 'acme', subject: 'alice' };
    const come = (atMs: number) =>
      Array.from({ length: BURST_REQUESTS }, () => shedding.admit(asking, atMs, true) !== undefined);
    for (const atMs of [0, WINDOW_MS]) expect(new Set(come(atMs))).toEqual(new Set([true]));
    expect(shedding.admit(asking, 2 * WINDOW_MS, false)).toBeDefined();
    for (const atMs of [3, 4].map((window) => window * WINDOW_MS)) {
      expect(new Set(come(atMs)), `at ${atMs} ms`).toEqual(new Set([true]));
    }
    expect(new Set(come(5 * WINDOW_MS))).toEqual(new Set([false]));
  });

  test.each([
    ['all that is answered is slow', [true, true], false],
    ['some of what is answered is quick', [true, false], true],
    ['nobody knows how quick they were', [undefined, undefined], true],
  ])('lets no more in than before while %s: %j', (_, answers, grows) => {
    const shedding = new Shedding();
    const asking = { tenant: 'acme', subject: 'alice' };
    for (let nowMs = 0; nowMs <= 1_000; nowMs += 20) shedding.admit(asking, nowMs, true);
    const other = { tenant: 'other', subject: 'bob' };
    // The thread is in time again, and places are asked for all the time.
    let places = 0;
    for (let nowMs = 1_100; nowMs < 3_100; nowMs += WINDOW_MS) {
      const asked = Array.from({ length: 4 * FEW }, () => shedding.admit(other, nowMs, false));
      const letIn = asked.filter((answered) => answered !== undefined);
      places = letIn.length;
      for (const [index, answered] of letIn.entries()) answered(answers[index % 2]);
    }
    if (grows) expect(places).toBeGreaterThan(FEW);
    else expect(places).toBe(FEW);
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
