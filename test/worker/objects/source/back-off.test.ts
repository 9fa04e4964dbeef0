import { expect, test } from 'vitest';
import { BackOff } from '../../../../worker/objects/source/back-off.ts';

const AT_MS = 1_000_000;
const CAP_MS = 300_000;

/** How long it is left alone after a failure at that time. */
function waitMs(backOff: BackOff, nowMs: number): number {
  let [barred, free] = [0, 2 * CAP_MS];
  expect(backOff.barAt(nowMs + free)).toBeUndefined();
  while (free - barred > 1) {
    const middle = Math.floor((barred + free) / 2);
    if (backOff.barAt(nowMs + middle) === undefined) free = middle;
    else barred = middle;
  }
  return free;
}

function waitsMs(backOff: BackOff, failures: number): number[] {
  return Array.from({ length: failures }, () => {
    backOff.failed('it ended', AT_MS);
    return waitMs(backOff, AT_MS);
  });
}

test('what never failed is tried at once', () => {
  expect(new BackOff().barAt(0)).toBeUndefined();
});

test('what fails again and again is left alone twice as long each time, and five minutes at most', () => {
  const waits = waitsMs(new BackOff(), 40);
  expect(waits.slice(0, 10)).toEqual([
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000,
  ]);
  expect(new Set(waits.slice(9))).toEqual(new Set([CAP_MS]));
});

test('a good run lets it be tried at once, and begins the waits anew', () => {
  const backOff = new BackOff();
  waitsMs(backOff, 5);
  backOff.succeeded();
  expect(backOff.barAt(AT_MS)).toBeUndefined();
  expect(waitsMs(backOff, 2)).toEqual([1_000, 2_000]);
});

test('says why it is left alone, by its last failure, and for how many seconds', () => {
  const backOff = new BackOff();
  backOff.failed('it ended with 1', AT_MS);
  backOff.failed('it ended with 2', AT_MS);
  expect(backOff.barAt(AT_MS)).toBe('it ended with 2; it is started again in 2 s');
  expect(backOff.barAt(AT_MS + 1_001)).toBe('it ended with 2; it is started again in 1 s');
  expect(backOff.barAt(AT_MS + 2_000)).toBeUndefined();
});
