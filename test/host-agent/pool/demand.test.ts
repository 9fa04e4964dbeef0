import { describe, expect, it } from 'vitest';
import { Demand } from '../../../host-agent/pool/demand.ts';

function demandOf(...arrivalsMs: number[]): Demand {
  const demand = new Demand();
  for (const atMs of arrivalsMs) demand.record(atMs);
  return demand;
}

describe('Demand', () => {
  it('is nothing before anybody came', () => {
    expect(new Demand().burst(0)).toBe(0);
  });

  it('is as many as came within ten seconds, at the busiest time', () => {
    expect(demandOf(0, 1_000, 2_000).burst(3_000)).toBe(3);
    expect(demandOf(0, 20_000, 40_000).burst(41_000)).toBe(1);
    expect(demandOf(0, 1_000, 30_000, 31_000, 32_000, 60_000).burst(61_000)).toBe(3);
    expect(demandOf(0, 10_000).burst(10_000)).toBe(1);
  });

  it('is forgotten after five minutes', () => {
    const demand = demandOf(0, 1, 2);
    expect(demand.burst(299_999)).toBe(3);
    expect(demand.burst(400_000)).toBe(0);
  });

  it('remembers a bounded number', () => {
    const demand = new Demand();
    for (let at = 0; at < 10_000; at += 1) demand.record(at);
    expect(demand.burst(10_000)).toBe(256);
  });
});
