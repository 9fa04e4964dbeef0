import { expect, test } from 'vitest';
import { killBetweenCheckpointAndSandbox, snapshotKillEnvironment } from '../e2e/snapshot-kills.ts';
import { useStack } from '../e2e/stack.ts';

const POINTS = 96;
const stack = useStack(snapshotKillEnvironment);

test(`what is killed at ${POINTS} points between checkpoint and snapshot leaves the session where it was or at the snapshot`, {
  timeout: 7_200_000,
}, async () => {
  const kills = await killBetweenCheckpointAndSandbox(stack(), POINTS);
  const counts: Record<string, number> = {};
  for (const { way, target, outcome } of kills) {
    const key = `${way}, ${target}: ${outcome}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  console.log(JSON.stringify(counts, null, 2));
  expect(kills.filter(({ outcome }) => outcome !== 'not hit').length).toBeGreaterThan(POINTS / 2);
});
