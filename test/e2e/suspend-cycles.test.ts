import { test } from 'vitest';
import { useStack } from './stack.ts';
import { suspendOverAndOver } from './suspend-cycles.ts';

const CYCLES = 6;
const MIB = 1024 ** 2;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

test(`${CYCLES} checkpoints and restores of one session lose nothing of its files, its heap and its programs`, {
  timeout: 600_000,
}, async () => {
  await suspendOverAndOver(stack(), { cycles: CYCLES, heapBytes: 8 * MIB });
});
