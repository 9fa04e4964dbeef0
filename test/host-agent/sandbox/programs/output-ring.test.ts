import { expect, test } from 'vitest';
import { OutputRing } from '../../../../host-agent/sandbox/programs/output-ring.ts';

const bytes = (text: string): Uint8Array => Buffer.from(text);
const textOf = (piece: { bytes: Uint8Array } | undefined): string | undefined =>
  piece === undefined ? undefined : Buffer.from(piece.bytes).toString();

test('what was written is read from any position, one stream at a time', () => {
  const ring = new OutputRing(100);
  ring.push('stdout', bytes('ab'));
  ring.push('stdout', bytes('cd'));
  ring.push('stderr', bytes('ef'));
  expect(textOf(ring.from(0))).toBe('abcd');
  expect(ring.from(1)).toMatchObject({ stream: 'stdout', offset: 1 });
  expect(textOf(ring.from(3))).toBe('d');
  expect(ring.from(4)).toMatchObject({ stream: 'stderr', offset: 4 });
  expect(ring.from(6)).toBeUndefined();
});

test('the oldest bytes go, to the byte', () => {
  const ring = new OutputRing(5);
  ring.push('stdout', bytes('abcd'));
  ring.push('stderr', bytes('efgh'));
  expect([ring.startOffset, ring.endOffset]).toEqual([3, 8]);
  expect(ring.from(0)).toMatchObject({ offset: 3 });
  expect(textOf(ring.from(0))).toBe('d');
});

test('what somebody has not read yet stays beyond the capacity, and goes once it was read', () => {
  const ring = new OutputRing(2);
  ring.push('stdout', bytes('abcdef'), 1);
  expect(ring.startOffset).toBe(1);
  expect(textOf(ring.from(0))).toBe('bcdef');
  ring.push('stdout', bytes('g'));
  expect(ring.startOffset).toBe(5);
});

test('many small writes do not become many pieces', () => {
  const ring = new OutputRing(10_000);
  for (let count = 0; count < 2_000; count += 1) ring.push('stdout', bytes('x'));
  expect(ring.from(0)?.bytes.length).toBe(1_024);
  expect(ring.from(1_024)?.bytes.length).toBe(976);
});

test('bytes to one stream and the other by turns do not become pieces without end', () => {
  const ring = new OutputRing(1_000_000);
  for (let count = 0; count < 10_000; count += 1) {
    ring.push('stdout', bytes('x'));
    ring.push('stderr', bytes('y'));
  }
  expect([ring.startOffset, ring.endOffset]).toEqual([20_000 - 8_192, 20_000]);
  expect(ring.from(0)).toMatchObject({ stream: 'stdout', offset: ring.startOffset });
  expect(ring.from(19_999)).toMatchObject({ stream: 'stderr', offset: 19_999 });
  expect(ring.from(20_000)).toBeUndefined();
});
