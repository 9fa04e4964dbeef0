/** The migration of a running call, ten times in a row, with 200 MB of state. */
import { expect, test } from 'vitest';
import { printWhileMoving } from '../e2e/moving.ts';
import { useSecondHost } from '../e2e/second-host.ts';
import { useStack } from '../e2e/stack.ts';

const ROUNDS = 10;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
const second = useSecondHost(stack);

test('a program with 200 MB of state moves ten times while its reader sees every number once', {
  timeout: 900_000,
}, async () => {
  const session = await stack().open();
  const { hosts } = await printWhileMoving(session, {
    numbers: 4_000,
    rounds: ROUNDS,
    stateBytes: 200_000_000,
  });
  const [first] = hosts;
  expect([stack().stack.hostId, second().hostId]).toContain(first);
  const other = first === stack().stack.hostId ? second().hostId : stack().stack.hostId;
  // Each host in turn: where it began, and then ten moves.
  expect(hosts).toEqual(Array.from({ length: ROUNDS + 1 }, (_, at) => (at % 2 === 0 ? first : other)));
  await session.delete();
});
