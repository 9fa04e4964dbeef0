import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { type Creation, createOnce } from '../../../worker/calls/keyed-creation.ts';

const place = { env, tenant: 'keyed-creations' };
const missing = failure('not_found', 'no such thing');

/** Things that are made under ids: how often each was is told. */
function things(withinMs = 60_000) {
  const there = new Set<string>();
  let ids = 0;
  const creation: Creation<string> = {
    id: async () => {
      ids += 1;
      return `thing-${ids}`;
    },
    make: async (id) => {
      there.add(id);
      return success(id);
    },
    find: async (id): Promise<Outcome<string>> => (there.has(id) ? success(id) : missing),
    withinMs,
  };
  return { there, creation };
}

const keyOf = (key: string) => ({ key, fingerprint: 'the same' });

test('without a key each request makes something', async () => {
  const { there, creation } = things();
  await createOnce(place, null, creation);
  await createOnce(place, null, creation);
  expect([...there]).toEqual(['thing-1', 'thing-2']);
});

test('what a first request did not live to see is made when its time is over, and not before', async () => {
  const { there, creation } = things();
  const dies = { ...creation, make: () => Promise.reject(new Error('gone')) };
  await expect(createOnce(place, keyOf('dies'), dies)).rejects.toThrow('gone');
  expect(await createOnce(place, keyOf('dies'), creation)).toMatchObject({ code: 'idempotency_in_progress' });
  expect(there.size).toBe(0);
  const late = { ...creation, withinMs: 0 };
  const made = await createOnce(place, keyOf('dies'), late);
  expect(made).toEqual(success([...there][0]));
  expect(await createOnce(place, keyOf('dies'), late)).toEqual(made);
  expect(there.size).toBe(1);
});

test('what a first request made without living to say so is found', async () => {
  const { there, creation } = things(0);
  const dies = {
    ...creation,
    make: async (id: string) => {
      await creation.make(id);
      throw new Error('gone');
    },
  };
  await expect(createOnce(place, keyOf('made'), dies)).rejects.toThrow('gone');
  expect(await createOnce(place, keyOf('made'), creation)).toEqual(success('thing-1'));
  expect(there.size).toBe(1);
});

test('what was removed since is not made anew', async () => {
  const { there, creation } = things(0);
  await createOnce(place, keyOf('removed'), creation);
  there.clear();
  expect(await createOnce(place, keyOf('removed'), creation)).toMatchObject({ code: 'not_found' });
  expect(there.size).toBe(0);
});
