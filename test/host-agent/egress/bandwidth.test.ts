import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type BandwidthShare, HostBandwidth } from '../../../host-agent/egress/bandwidth.ts';

const PIECE_BYTES = 32 * 1024;

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => vi.useRealTimers());

/** Takes as much as it is given, in pieces, for ever; says how many bytes that were. */
function greedy(share: BandwidthShare, pieceBytes = PIECE_BYTES): () => number {
  let bytes = 0;
  const granted = (): void => {
    bytes += pieceBytes;
    next();
  };
  const next = (): void => {
    while (share.take(pieceBytes, granted)) bytes += pieceBytes;
  };
  next();
  return () => bytes;
}

/** Of `seconds`, after what a quiet time had saved up was used. */
function rateOf(bytes: () => number, seconds: number): number {
  vi.advanceTimersByTime(1_000);
  const before = bytes();
  vi.advanceTimersByTime(seconds * 1_000);
  return (bytes() - before) / seconds;
}

describe('the bandwidth of a host', () => {
  test('is what one sandbox gets at most, and not more than its own rate', () => {
    const wide = new HostBandwidth({ hostRate: 10_000_000, sandboxRate: 1_000_000 });
    const narrow = new HostBandwidth({ hostRate: 1_000_000, sandboxRate: 10_000_000 });
    for (const bandwidth of [wide, narrow]) {
      const rate = rateOf(greedy(bandwidth.shareOfSandbox()), 20);
      expect(rate).toBeGreaterThan(950_000);
      expect(rate).toBeLessThan(1_050_000);
    }
  });

  test('is shared by those who want it: by bytes, however many connections and pieces they come in', () => {
    const bandwidth = new HostBandwidth({ hostRate: 1_000_000, sandboxRate: 10_000_000 });
    const many = bandwidth.shareOfSandbox();
    const ofMany = Array.from({ length: 20 }, () => greedy(many));
    const ofOne = greedy(bandwidth.shareOfSandbox(), 1_000);
    vi.advanceTimersByTime(1_000);
    const before = [ofMany.reduce((sum, bytes) => sum + bytes(), 0), ofOne()] as const;
    vi.advanceTimersByTime(20_000);
    const one = (ofOne() - before[1]) / 20;
    const others = (ofMany.reduce((sum, bytes) => sum + bytes(), 0) - before[0]) / 20;
    expect(one).toBeGreaterThan(450_000);
    expect(others).toBeGreaterThan(450_000);
    expect(one + others).toBeLessThan(1_050_000);
  });

  test('is not saved up by who does not use it', () => {
    const bandwidth = new HostBandwidth({ hostRate: 1_000_000, sandboxRate: 1_000_000 });
    const busy = greedy(bandwidth.shareOfSandbox());
    const late = bandwidth.shareOfSandbox();
    vi.advanceTimersByTime(60_000);
    const before = busy();
    greedy(late);
    vi.advanceTimersByTime(10_000);
    expect((busy() - before) / 10).toBeGreaterThan(450_000);
  });

  test('makes nobody wait while there is enough', () => {
    const share = new HostBandwidth({ hostRate: 1_000_000, sandboxRate: 1_000_000 }).shareOfSandbox();
    expect([share.take(200_000, () => undefined), share.take(200_000, () => undefined)]).toEqual([
      true,
      true,
    ]);
    let isGranted = false;
    expect(share.take(1, () => (isGranted = true))).toBe(false);
    vi.advanceTimersByTime(100);
    expect(isGranted).toBe(false);
    vi.advanceTimersByTime(100);
    expect(isGranted).toBe(true);
  });

  test('is nothing to a sandbox that has gone', () => {
    const bandwidth = new HostBandwidth({ hostRate: 1_000_000, sandboxRate: 1_000_000 });
    const gone = bandwidth.shareOfSandbox();
    const before = greedy(gone);
    vi.advanceTimersByTime(1_000);
    gone.close();
    const atEnd = before();
    const rate = rateOf(greedy(bandwidth.shareOfSandbox()), 10);
    expect(before()).toBe(atEnd);
    expect(rate).toBeGreaterThan(950_000);
  });
});
