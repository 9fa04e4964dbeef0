import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { TailRing } from '../../../host-agent/execution/tail-ring.ts';

test.each([1, 7, 100, 999, 1000, 1001, 2500])('keeps the last bytes when pieces of %i come', (size) => {
  const ring = new TailRing(1000);
  const bytes = randomBytes(10_000);
  for (let offset = 0; offset < bytes.length; offset += size) {
    ring.push(bytes.subarray(offset, offset + size));
    const end = Math.min(offset + size, bytes.length);
    expect(ring.bytes().equals(bytes.subarray(Math.max(0, end - 1000), end))).toBe(true);
  }
});

test('is empty before anything came', () => {
  expect(new TailRing(1000).bytes()).toHaveLength(0);
});
