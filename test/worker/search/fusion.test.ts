import { expect, test } from 'vitest';
import { fused } from '../../../worker/search/fusion.ts';

const ranked = (...ids: string[]) => ids.map((id, at) => ({ id, score: 100 - at }));
const ids = (...rankings: string[][]) =>
  fused(
    rankings.map((one) => ranked(...one)),
    10,
  ).map(({ id }) => id);

test('what several rankings have comes before what one of them has first', () => {
  expect(ids(['a', 'both'], ['b', 'both'])).toEqual(['both', 'a', 'b']);
});

test('the places count, whatever the scores are', () => {
  const loud = [{ id: 'loud', score: 1_000_000 }];
  expect(fused([loud, ranked('quiet')], 10).map(({ score }) => score)).toEqual([0.5, 0.5]);
  expect(ids(['a', 'b', 'c'], ['a', 'c', 'b'])).toEqual(['a', 'b', 'c']);
});

test('first in every ranking is 1, and a ranking that has nothing leaves the other as it is', () => {
  expect(fused([ranked('a', 'b'), ranked('a')], 10)[0]).toEqual({ id: 'a', score: 1 });
  expect(ids(['b', 'a'], [])).toEqual(['b', 'a']);
  expect(ids([], [])).toEqual([]);
});

test('no more are given than are asked for', () => {
  expect(fused([ranked('a', 'b', 'c'), ranked('d')], 2)).toHaveLength(2);
});
