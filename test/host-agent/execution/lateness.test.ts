import { expect, test } from 'vitest';
import { Lateness } from '../../../host-agent/execution/lateness.ts';

function at(clock: { ms: number }): Lateness {
  return new Lateness(() => clock.ms);
}

test('the first grant counts as come at once, however the clocks differ', () => {
  expect(at({ ms: 5_000 }).observe(1_900_000_000)).toBe(0);
});

test('a grant is late by what it took longer than the fastest one', () => {
  const clock = { ms: 0 };
  const lateness = at(clock);
  lateness.observe(1000);
  clock.ms = 30_000;
  expect(lateness.observe(1010)).toBe(20_000);
  expect(lateness.observe(1030)).toBe(0);
});

test('an edge whose clock was set right is believed again after some minutes', () => {
  const clock = { ms: 0 };
  const lateness = at(clock);
  lateness.observe(1000);
  clock.ms = 1_000;
  expect(lateness.observe(901)).toBe(100_000);
  for (clock.ms = 60_000; clock.ms <= 1_260_000; clock.ms += 60_000) lateness.observe(900 + clock.ms / 1000);
  expect(lateness.observe(900 + clock.ms / 1000)).toBe(0);
});
