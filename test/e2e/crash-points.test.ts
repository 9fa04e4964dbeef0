import { describe, expect, test } from 'vitest';
import { crashPointEnvironment, killAtPoints } from './crash-points.ts';
import { useStack } from './stack.ts';

const POINTS = 20;
const stack = useStack(crashPointEnvironment);

describe('kill -9 of the host agent at a step of its journal', () => {
  test(`at ${POINTS} seeded steps loses none, repeats none, and is clean in 10 s`, async () => {
    const hits = await killAtPoints(stack(), POINTS);
    expect(new Set(hits.map(({ phase }) => phase))).toEqual(new Set(['before', 'torn', 'after']));
  }, 900_000);
});
