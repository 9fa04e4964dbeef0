import { expect, test } from 'vitest';
import { CONTROL_BASE_DELAY_MS, reconnectDelayMs } from '../../../host-agent/edge/reconnect-delay.ts';

test('F18 the first attempt after a loss is made within a quarter of a second, by no two hosts at once', () => {
  expect(reconnectDelayMs(0, () => 1)).toBe(250);
  expect(reconnectDelayMs(0, () => 0.5)).toBe(125);
});

test('F18 delays have full jitter under a cap that doubles up to 20 s', () => {
  const caps = [1, 2, 3, 4, 5, 6, 7, 8, 100].map((attempt) => reconnectDelayMs(attempt, () => 1));
  expect(caps).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000, 20_000]);
  expect(reconnectDelayMs(8, () => 0)).toBe(0);
});

test('F18 control links are spread over three seconds, until their cap has grown beyond that', () => {
  const caps = [0, 1, 2, 3, 4].map((attempt) => reconnectDelayMs(attempt, () => 1, CONTROL_BASE_DELAY_MS));
  expect(caps).toEqual([3_000, 3_000, 3_000, 3_000, 4_000]);
});
