import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { within } from '../../../host-agent/guest-link/deferred.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('no answer is late of a guest that is kept from running', async () => {
  let pause: PromiseWithResolvers<void> | undefined = Promise.withResolvers<void>();
  const settled: string[] = [];
  const answer = within(
    new Promise<string>(() => {}),
    1_000,
    () => 'late',
    () => pause?.promise,
  ).then((text) => settled.push(text));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(settled).toEqual([]);
  const { resolve } = pause;
  pause = undefined;
  resolve();
  await vi.advanceTimersByTimeAsync(999);
  expect(settled).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  await answer;
  expect(settled).toEqual(['late']);
});
