import { expect, test } from 'vitest';
import { useStack } from '../e2e/stack.ts';
import { suspendOverAndOver } from '../e2e/suspend-cycles.ts';

const CYCLES = 200;
const MIB = 1024 ** 2;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

test(`${CYCLES} checkpoints and restores of one session lose nothing of its files, its heap and its programs`, {
  timeout: 7_200_000,
}, async () => {
  const { suspendMs, resumeMs } = await suspendOverAndOver(stack(), { cycles: CYCLES, heapBytes: 8 * MIB });
  console.log(`suspend ${middle(suspendMs)} ms, back and called ${middle(resumeMs)} ms in the middle`);
  expect(suspendMs).toHaveLength(CYCLES);
});

function middle(values: readonly number[]): number {
  return Math.round(values.toSorted((left, right) => left - right)[values.length >> 1] ?? Number.NaN);
}
