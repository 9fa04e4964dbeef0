import { describe, expect, test } from 'vitest';
import { crashPointEnvironment, killAtPoints } from '../e2e/crash-points.ts';
import { useStack } from '../e2e/stack.ts';

const POINTS = 200;
/** Whatever the host notes down while it works; a key set and a compacted session are of its start. */
const KINDS = ['attached', 'started', 'finished', 'acknowledged', 'detached'];
const stack = useStack(crashPointEnvironment);

describe('kill -9 of the host agent at a step of its journal', () => {
  test(`at ${POINTS} seeded steps loses none, repeats none, and is clean in 10 s`, async () => {
    const hits = await killAtPoints(stack(), POINTS);
    const kinds = new Set(hits.flatMap((hit) => hit.kinds));
    for (const kind of KINDS) expect(kinds).toContain(kind);
  }, 10_800_000);
});
