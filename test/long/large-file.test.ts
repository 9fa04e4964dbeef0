import { test } from 'vitest';
import { moveLargeFile } from '../e2e/large-file.ts';
import { useStack } from '../e2e/stack.ts';

const GIB = 1024 ** 3;
const stack = useStack();

test('two gigabytes go into a session and out of it through 64 MiB of memory of the host', async () => {
  await moveLargeFile(stack(), 2 * GIB);
}, 1_800_000);
