import { expect, test } from 'vitest';
import { killBetweenCheckpointAndSandbox, snapshotKillEnvironment } from './snapshot-kills.ts';
import { useStack } from './stack.ts';

/** Each way and each target once. */
const POINTS = 8;
/** What the host would keep is fetched, so that it can be killed at that too. */
const stack = useStack((stateDir) => ({
  ...snapshotKillEnvironment(stateDir),
  SANDGATE_KEPT_SNAPSHOT_BYTES: '0',
}));

test(`what is killed at ${POINTS} points between checkpoint and snapshot leaves the session where it was or at the snapshot`, {
  timeout: 1_200_000,
}, async () => {
  const kills = await killBetweenCheckpointAndSandbox(stack(), POINTS);
  expect(kills.filter(({ outcome }) => outcome !== 'not hit').length).toBeGreaterThanOrEqual(POINTS / 2);
});
