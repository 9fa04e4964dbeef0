/** Places of uploads whose requests were cut off: nobody leaves them. */
import { afterEach, expect, test, vi } from 'vitest';
import { type UploadPlace, uploadPlace } from '../../../worker/content/open-uploads.ts';

afterEach(() => {
  vi.useRealTimers();
});

async function placeOf(tenant: string): Promise<UploadPlace> {
  const place = await uploadPlace(tenant);
  if (!place.ok) throw new Error(place.detail);
  return place.value;
}

test('a place is free again when nothing was heard of its upload for a minute, and not before', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
  const [first] = [await placeOf('one'), await placeOf('one'), await placeOf('one'), await placeOf('one')];
  vi.setSystemTime(Date.now() + 59_000);
  first.heard();
  const waiting = uploadPlace('one');
  vi.setSystemTime(Date.now() + 10_000);
  // The three others are gone; the one that was heard of is not.
  const places = [await waiting, await uploadPlace('one'), await uploadPlace('one')];
  expect(places.map(({ ok }) => ok)).toEqual([true, true, true]);
  const fourth = uploadPlace('one');
  vi.setSystemTime(Date.now() + 10_001);
  expect(await fourth).toMatchObject({ ok: false, code: 'overloaded' });
  first.leave();
  expect((await uploadPlace('one')).ok).toBe(true);
});
