/** The migration of a running call, ten times in a row, with 200 MB of state. */
import { test } from 'vitest';
import { printWhileMoving } from '../e2e/moving.ts';
import { useSecondHost } from '../e2e/second-host.ts';
import { useStack } from '../e2e/stack.ts';

const ROUNDS = 10;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
useSecondHost(stack);

test('a program with 200 MB of state moves ten times while its reader sees every number once', {
  timeout: 900_000,
}, async () => {
  const session = await stack().open();
  await printWhileMoving(session, { numbers: 4_000, rounds: ROUNDS, stateBytes: 200_000_000 });
  await session.delete();
});
