/** Eight forks of one session at a pending call: each its own continuation, and what it takes against one. */
import { expect, test } from 'vitest';
import { SnapshotSchema } from '../../shared/snapshot-resource.ts';
import { answer, fork, post, programIn, registerAsk } from '../e2e/forking.ts';
import { useStack } from '../e2e/stack.ts';

const FORKS = 8;
/** What eight forks take, their one checkpoint included, against one fork. */
const FORKS_AT_MOST = 3;
/** What the restores alone take: no more than one after the other, however few cores there are. */
const RESTORES_AT_MOST = FORKS;
const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));

const CODE = `
import random
held = bytearray(b"x" * 20_000_000)
way = tools.people.ask(n=1)
(way, way ** 2, len(held), random.random())`;

test('eight forks from one point go on in eight ways', { timeout: 600_000 }, async () => {
  await registerAsk(stack().api);
  const parent = await stack().open();
  const waiting = await post(parent, '', { language: 'python', code: CODE });
  const timed = async (count: number) => {
    const beganMs = performance.now();
    const children = await fork(parent, count);
    return { children, elapsedMs: performance.now() - beganMs };
  };
  const one = await timed(1);
  const eight = await timed(FORKS);
  const ratio = eight.elapsedMs / one.elapsedMs;
  console.log(
    `1 fork ${Math.round(one.elapsedMs)} ms, ${FORKS} forks ${Math.round(eight.elapsedMs)} ms, ratio ${ratio.toFixed(2)}`,
  );
  const values = await Promise.all(
    eight.children.map(async (child, n) => {
      const ended = await answer(child, await programIn(child), n);
      expect(ended.execution.error).toBeNull();
      expect(ended.execution.value).toMatch(new RegExp(`^\\(${n}, ${n * n}, 20000000, 0\\.`));
      return ended.execution.value;
    }),
  );
  expect(new Set(values).size).toBe(FORKS);
  expect(new Set(values.map((value) => value?.split(', ').at(-1))).size).toBe(FORKS);
  expect(ratio).toBeLessThan(FORKS_AT_MOST);
  const home = await answer(parent, waiting, 100);
  expect(home.execution.value).toMatch(/^\(100, 10000, 20000000, /);
  await Promise.all([parent, ...one.children, ...eight.children].map((session) => session.delete()));
});

test('eight sessions of one snapshot are there in less time than eight take one by one', {
  timeout: 600_000,
}, async () => {
  const parent = await stack().open();
  await parent.py('held = bytearray(b"x" * 20_000_000)');
  const { value: kept } = await parent.api.json(SnapshotSchema, 'POST', `${parent.path}/snapshots`, {
    body: { name: 'kept' },
  });
  const timed = async (count: number) => {
    const beganMs = performance.now();
    const opening = Array.from({ length: count }, () => stack().open({ from_snapshot: kept.snapshot_id }));
    const opened = await Promise.all(opening);
    const elapsedMs = performance.now() - beganMs;
    for (const session of opened) expect((await session.py('len(held)')).value).toBe('20000000');
    await Promise.all(opened.map((session) => session.delete()));
    return elapsedMs;
  };
  await timed(1);
  const one = await timed(1);
  const eight = await timed(FORKS);
  console.log(
    `1 restore ${Math.round(one)} ms, ${FORKS} restores ${Math.round(eight)} ms, ratio ${(eight / one).toFixed(2)}`,
  );
  expect(eight / one).toBeLessThan(RESTORES_AT_MOST);
  await parent.delete();
});
