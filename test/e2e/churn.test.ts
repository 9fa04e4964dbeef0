import { test } from 'vitest';
import { churn } from './churn.ts';
import { useStack } from './stack.ts';

const SANDBOXES = 20;
/** Without a pool: what is made ahead comes and goes by itself. */
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

test(`${SANDBOXES} sandboxes made and removed leave descriptors, control groups, mounts and folders as they were`, async () => {
  await churn(stack(), SANDBOXES);
}, 300_000);
