/** A session whose sandbox was made ahead of it outlives the agent of its host like any other. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PATIENCE_MS } from '../patience.ts';
import { restsOf } from './rests.ts';
import { ORPHAN_GRACE_MS, useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack(() => ({
  SANDGATE_POOL_FLOOR: '1',
  SANDGATE_POOL_CEILING: '1',
  SANDGATE_HELD_FOR_S: '60',
}));
const { sandboxOf, atRest, killAndReturn, gone } = restsOf(stack);

async function isHandedOver(sandboxId: string): Promise<boolean> {
  const log = await readFile(join(stack().stack.stateDir, 'logs/host-agent.log'), 'utf8');
  return log
    .split('\n')
    .some((line) => line.includes('"sandbox_handed_over"') && line.includes(`"${sandboxId}"`));
}

test('kill -9 of the host agent takes nothing from an idle session with a sandbox of the pool', async () => {
  const session = await until('a session has a sandbox of the pool', PATIENCE_MS, async () => {
    const opened = await stack().open();
    if (await isHandedOver(await sandboxOf(opened))) return opened;
    await opened.delete();
    return undefined;
  });
  const sandboxId = await sandboxOf(session);
  await session.py('kept = 41');
  await session.sh('export KEPT=here; cd /tmp');
  await atRest(sandboxId);
  await killAndReturn();
  expect(await session.py('kept + 1')).toMatchObject({ value: '42', state_lost: false });
  expect(await session.sh('echo "$KEPT $PWD"')).toMatchObject({ stdout: 'here /tmp\n', state_lost: false });
  expect(await sandboxOf(session)).toBe(sandboxId);
  await session.delete();
  await gone(sandboxId, ORPHAN_GRACE_MS);
}, 120_000);
