import { expect, test } from 'vitest';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useStack } from './stack.ts';
import { suspendOverAndOver } from './suspend-cycles.ts';
import { until } from './until.ts';

const CYCLES = 6;
const IDLE_S = 5;
const MIB = 1024 ** 2;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

test(`${CYCLES} checkpoints and restores of one session lose nothing of its files, its heap and its programs`, {
  timeout: 600_000,
}, async () => {
  await suspendOverAndOver(stack(), { cycles: CYCLES, heapBytes: 8 * MIB });
});

test('R72: what was written between suspensions is there after each, by word and by the idle time in turn', {
  timeout: 600_000,
}, async () => {
  const session = await stack().open({ suspend_after_idle_s: IDLE_S });
  for (let round = 1; round <= 4; round += 1) {
    const copy = `mkdir -p ~/bin; cp /bin/echo ~/bin/program-${round}`;
    const write = `echo ${round} >~/file-${round}; echo ${round} >/tmp/file-${round}; ${copy}`;
    expect(await session.sh(write)).toMatchObject({ status: 'succeeded', state_lost: false });
    const { generation } = await session.describe();
    if (round % 2 === 1) await session.api.json(SessionSchema, 'POST', `${session.path}/suspend`);
    await until(`round ${round}: it is suspended`, IDLE_S * 1_000 + PATIENCE_MS, async () =>
      (await session.describe()).state === 'suspended' ? true : undefined,
    );
    const written = Array.from({ length: round }, (_, index) => `${index + 1}\n`).join('');
    const look = 'cat ~/file-*; cat /tmp/file-*; for program in ~/bin/*; do $program runs; done';
    expect(await session.sh(look), `round ${round}`).toMatchObject({
      status: 'succeeded',
      state_lost: false,
      stdout: `${written}${written}${'runs\n'.repeat(round)}`,
    });
    expect((await session.describe()).generation).toBeGreaterThan(generation);
  }
  await session.delete();
});
