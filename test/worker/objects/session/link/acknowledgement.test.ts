import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  Acknowledgement,
  type HeldFrames,
} from '../../../../../worker/objects/session/link/acknowledgement.ts';

const NEEDS_NOTHING = { needsWrite: false };
const NEEDS_WRITE = { needsWrite: true };

/** What was written and sent, in order, with the milliseconds since the beginning. */
function watched() {
  const seen: string[] = [];
  const beganMs = Date.now();
  const note = (what: string) => seen.push(`${what} after ${Date.now() - beganMs}`);
  const logs: HeldFrames = {
    heldFrom: undefined,
    heldBesideOthers: [],
    neverHold: () => undefined,
  };
  const acknowledgement = new Acknowledgement(logs, 0, {
    write: (lastSeq) => note(`wrote ${lastSeq}`),
    send: (seq) => note(`acknowledged ${seq}`),
    takesSelective: () => false,
  });
  return { acknowledgement, seen };
}

describe('the acknowledgement of what a host says', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('is of everything that came within a few milliseconds, when that is written', () => {
    const { acknowledgement, seen } = watched();
    acknowledgement.took(1, 100, NEEDS_WRITE);
    vi.advanceTimersByTime(4);
    acknowledgement.took(2, 100, NEEDS_WRITE);
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(['wrote 2 after 10', 'acknowledged 2 after 10']);
  });

  it('waits for the calls that follow where a call has ended and is written', () => {
    const { acknowledgement, seen } = watched();
    for (let call = 1; call <= 20; call += 1) {
      acknowledgement.took(2 * call - 1, 10, { needsWrite: true, isAwaited: false });
      acknowledgement.writes(2 * call);
      acknowledgement.took(2 * call, 0, NEEDS_NOTHING);
      vi.advanceTimersByTime(4);
    }
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(['acknowledged 40 after 100']);
  });

  it('comes soon again when something is to be written behind an end', () => {
    const { acknowledgement, seen } = watched();
    acknowledgement.took(1, 0, NEEDS_NOTHING);
    vi.advanceTimersByTime(5);
    acknowledgement.took(2, 100, NEEDS_WRITE);
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(['wrote 2 after 15', 'acknowledged 2 after 15']);
  });

  it('gives credit back soon, and at once where it is much', () => {
    const { acknowledgement, seen } = watched();
    acknowledgement.took(1, 32_768, NEEDS_NOTHING);
    vi.advanceTimersByTime(20);
    acknowledgement.took(2, 262_144, NEEDS_NOTHING);
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(['acknowledged 1 after 10', 'acknowledged 2 after 20']);
  });

  it('comes soon where frames were held that are held no more', () => {
    const { acknowledgement, seen } = watched();
    acknowledgement.took(1, 0, NEEDS_NOTHING);
    acknowledgement.schedule();
    vi.advanceTimersByTime(1_000);
    expect(seen).toEqual(['acknowledged 1 after 10']);
  });
});
