import { expect, it } from 'vitest';
import { UserIds } from '../../../host-agent/sandbox/user-ids.ts';

it('gives every living sandbox a user of its own, at or above 100000', () => {
  const ids = new UserIds();
  const taken = Array.from({ length: 500 }, () => ids.take());
  expect(new Set(taken).size).toBe(500);
  expect(Math.min(...taken)).toBe(100_000);
});

it('does not give a released user again at once', () => {
  const ids = new UserIds();
  const first = ids.take();
  ids.release(first);
  expect(ids.take()).not.toBe(first);
});

it('says when all users are taken, and goes on when one is released', () => {
  const ids = new UserIds();
  for (let index = 0; index < 65_536; index += 1) ids.take();
  expect(() => ids.take()).toThrow('no sandbox user is free');
  ids.release(100_123);
  expect(ids.take()).toBe(100_123);
});
