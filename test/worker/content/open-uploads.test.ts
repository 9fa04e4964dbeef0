/** Places of uploads: who holds one, who has to give it back, and when nobody does. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type OpenUpload, openUpload, uploadRoom } from '../../../worker/content/open-uploads.ts';
import { eventually } from '../harness/eventually.ts';

const HOUR_MS = 3_600_000;
const opened: OpenUpload[] = [];
let hours = 0;
beforeEach(() => {
  // Each long after the one before, of which the isolate still knows when somebody yielded.
  hours += 1;
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * HOUR_MS });
});
afterEach(() => {
  vi.useRealTimers();
  for (const upload of opened.splice(0)) upload.leave();
});

async function opening(tenant: string): Promise<OpenUpload> {
  const upload = await openUpload(tenant);
  if (!upload.ok) throw new Error(upload.detail);
  opened.push(upload.value);
  return upload.value;
}

async function holding(tenant: string): Promise<OpenUpload> {
  const upload = await opening(tenant);
  expect((await upload.takePlace()).ok).toBe(true);
  return upload;
}

const fourOf = (tenant: string) => Promise.all([1, 2, 3, 4].map(() => holding(tenant)));
const later = (ms: number) => vi.setSystemTime(Date.now() + ms);
const LARGE = 1_000_000;

test('a place is free again when nothing was heard of its upload for a minute, and not before', async () => {
  const [first] = await fourOf('one');
  later(59_000);
  first?.heard();
  const waiting = uploadRoom('one', LARGE);
  later(5_000);
  // The three others are gone; the one that was heard of is not.
  expect((await waiting).ok).toBe(true);
  await Promise.all([holding('one'), holding('one'), holding('one')]);
  const fifth = uploadRoom('one', LARGE);
  later(10_001);
  expect(await fifth).toMatchObject({ ok: false, code: 'overloaded' });
  first?.leave();
  expect((await uploadRoom('one', LARGE)).ok).toBe(true);
});

test('an upload whose part is stored gives its place to another while its bytes flow on', async () => {
  const [first] = await fourOf('one');
  const fifth = await opening('one');
  const taken = fifth.takePlace();
  first?.giveBackPlace();
  expect((await taken).ok).toBe(true);
  expect([first?.holdsPlace, fifth.holdsPlace]).toEqual([false, true]);
  // And takes one again when there is one.
  const again = first?.takePlace();
  fifth.leave();
  expect((await again)?.ok).toBe(true);
});

test('what fits without a place waits for none', async () => {
  await fourOf('one');
  expect((await uploadRoom('one', 64 * 1024)).ok).toBe(true);
});

test('who holds a place for more than two minutes yields it where others wait, the first one first', async () => {
  const [first, second] = await fourOf('one');
  const heard = () => {
    for (const upload of opened) upload.heard();
  };
  for (let seconds = 0; seconds < 130; seconds += 50) {
    later(50_000);
    heard();
  }
  expect([first?.mustYield(), second?.mustYield()]).toEqual([false, false]);
  const other = await opening('other');
  expect((await other.takePlace()).ok).toBe(true);
  expect(first?.mustYield()).toBe(false);
  const fifth = await opening('one');
  const taken = fifth.takePlace();
  await eventually(() => {
    expect([second?.mustYield(), other.mustYield()]).toEqual([false, false]);
    expect(first?.mustYield()).toBe(true);
  });
  first?.leave();
  // Whoever waits takes it before another one has to go.
  expect(second?.mustYield()).toBe(false);
  expect((await taken).ok).toBe(true);
});

test('only so many are open at all, of one tenant and of all', async () => {
  for (let each = 0; each < 16; each += 1) await opening('one');
  const refused = openUpload('one');
  later(10_001);
  expect(await refused).toMatchObject({ ok: false, code: 'overloaded' });
  // Heard of a moment ago: they are not taken for gone.
  for (const upload of opened) upload.heard();
  for (const tenant of ['two', 'three', 'four']) {
    for (let each = 0; each < 16; each += 1) await opening(tenant);
  }
  const ofNobody = openUpload('five');
  later(10_001);
  expect(await ofNobody).toMatchObject({ ok: false, code: 'overloaded' });
});

test.each([
  ['of all', ['one', 'two', 'three', 'four'], 'five'],
  ['of its tenant', ['one'], 'one'],
])(
  'who is open for two minutes with next to nothing goes where the number %s is reached',
  async (_name, tenants, waits) => {
    for (const tenant of tenants) for (let each = 0; each < 16; each += 1) await opening(tenant);
    const [first, second] = opened;
    for (let seconds = 0; seconds < 150; seconds += 50) {
      later(50_000);
      for (const upload of opened) upload.heard();
    }
    expect(first?.mustYield(), 'nobody waits').toBe(false);
    const one = openUpload(waits);
    await eventually(() => {
      expect(second?.mustYield()).toBe(false);
      expect(first?.mustYield()).toBe(true);
    });
    first?.leave();
    const upload = await one;
    if (!upload.ok) throw new Error(upload.detail);
    opened.push(upload.value);
    expect(second?.mustYield(), 'there was room').toBe(false);
  },
);
