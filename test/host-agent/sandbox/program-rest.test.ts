import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ProgramRest } from '../../../host-agent/sandbox/program-rest.ts';
import { RunClock } from '../../../host-agent/sandbox/run-clock.ts';

const AFTER_MS = 2_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A program with 10 s on its clock; `quiet` says whether its sandbox can be frozen. */
function play({ quiet = true } = {}) {
  const told: string[] = [];
  let isFrozen = false;
  let canSleep = quiet;
  const clock = new RunClock(10_000, () => told.push('deadline'));
  const rest = new ProgramRest({
    clock,
    sleeper: {
      trySleep: async () => {
        isFrozen = canSleep;
        return isFrozen;
      },
      wake: () => {
        isFrozen = false;
      },
    },
    afterMs: AFTER_MS,
    listener: {
      onCall: () => undefined,
      onWaiting: (leftMs) => told.push(`waiting ${leftMs}`),
      onContinued: (leftMs) => told.push(`continued ${leftMs}`),
    },
  });
  return {
    rest,
    clock,
    told,
    isFrozen: () => isFrozen,
    quieten: () => {
      canSleep = true;
    },
  };
}

describe('a program that waits', () => {
  it('stops its clock at once, and its sandbox after a while', async () => {
    const { rest, told, isFrozen, clock } = play();
    await vi.advanceTimersByTimeAsync(1_000);
    rest.waits(true);
    await vi.advanceTimersByTimeAsync(AFTER_MS - 1);
    expect(isFrozen()).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isFrozen()).toBe(true);
    await vi.advanceTimersByTimeAsync(86_400_000);
    rest.goesOn();
    expect(isFrozen()).toBe(false);
    expect(told).toEqual(['waiting 9000', 'continued 9000']);
    expect(Math.round(clock.pausedMs)).toBe(AFTER_MS + 86_400_000);
    await vi.advanceTimersByTimeAsync(9_000);
    expect(told.at(-1)).toBe('deadline');
  });

  it('is frozen later where something else lives in its sandbox, and pays for none of that', async () => {
    const { rest, told, isFrozen, clock, quieten } = play({ quiet: false });
    rest.waits(true);
    await vi.advanceTimersByTimeAsync(20 * AFTER_MS);
    expect(isFrozen()).toBe(false);
    quieten();
    await vi.advanceTimersByTimeAsync(20 * AFTER_MS);
    expect(isFrozen()).toBe(true);
    expect(told).toEqual(['waiting 10000']);
    expect(clock.leftMs).toBe(10_000);
  });

  it('for timers of its own too pays for its time, and is not frozen', async () => {
    const { rest, told, isFrozen } = play();
    rest.waits(false);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(isFrozen()).toBe(false);
    expect(told).toEqual(['waiting 10000', 'deadline']);
  });

  it('and stirs pays until it is still again', async () => {
    const { rest, isFrozen, clock } = play();
    rest.waits(true);
    await vi.advanceTimersByTimeAsync(1_000);
    rest.stirs();
    await vi.advanceTimersByTimeAsync(AFTER_MS - 1);
    expect(isFrozen()).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isFrozen()).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(clock.leftMs).toBe(10_000 - AFTER_MS);
  });
});

describe('a clock', () => {
  it('that several hold runs when the last has let go', async () => {
    const ended: string[] = [];
    const clock = new RunClock(1_000, () => ended.push('end'));
    const letGo = [clock.hold(), clock.hold()];
    clock.pause();
    await vi.advanceTimersByTimeAsync(5_000);
    letGo[0]?.();
    letGo[0]?.();
    clock.resume();
    await vi.advanceTimersByTimeAsync(5_000);
    letGo[1]?.();
    expect(clock.pausedMs).toBe(10_000);
    await vi.advanceTimersByTimeAsync(999);
    expect(ended).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(ended).toEqual(['end']);
  });
});
