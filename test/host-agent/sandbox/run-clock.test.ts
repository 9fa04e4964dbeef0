import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { RunClock } from '../../../host-agent/sandbox/run-clock.ts';

let rang: number;
beforeEach(() => {
  vi.useFakeTimers();
  rang = 0;
});
afterEach(() => {
  vi.useRealTimers();
});

const clockOf = (timeoutMs: number) =>
  new RunClock(timeoutMs, () => {
    rang += 1;
  });

describe('the clock of a call', () => {
  test('counts only the time between pauses, and says how long they were', () => {
    const clock = clockOf(1_000);
    vi.advanceTimersByTime(600);
    clock.pause();
    expect(clock.leftMs).toBe(400);
    vi.advanceTimersByTime(86_400_000);
    expect([clock.leftMs, clock.pausedMs, rang]).toEqual([400, 86_400_000, 0]);
    clock.resume();
    vi.advanceTimersByTime(399);
    clock.pause();
    clock.pause();
    vi.advanceTimersByTime(1_000);
    clock.resume();
    clock.resume();
    expect(rang).toBe(0);
    vi.advanceTimersByTime(1);
    expect([rang, clock.pausedMs]).toEqual([1, 86_401_000]);
  });

  test('rings no more once it was stopped, be it on pause', () => {
    const running = clockOf(1_000);
    running.stop();
    const paused = clockOf(1_000);
    paused.pause();
    paused.stop();
    paused.resume();
    vi.advanceTimersByTime(10_000);
    expect(rang).toBe(0);
  });
});
