import { describe, expect, test } from 'vitest';
import { decodeRecord, encodeRecord } from '../../../host-agent/journal/record-format.ts';

const header = { kind: 'note', text: 'é漢😀' };
const payload = Buffer.from([0, 1, 2, 255]);
const whole = encodeRecord(header, [payload.subarray(0, 1), payload.subarray(1)]);

describe('a journal record', () => {
  test('comes back as it was written', () => {
    const decoded = decodeRecord(whole, 0);
    expect(decoded?.record.header).toEqual(header);
    expect(Buffer.from(decoded?.record.payload ?? [])).toEqual(payload);
    expect(decoded?.end).toBe(whole.length);
  });

  test('F28 torn at any byte is no record', () => {
    for (let length = 0; length < whole.length; length += 1) {
      expect(decodeRecord(whole.subarray(0, length), 0)).toBeUndefined();
    }
  });

  test('F16 with any one byte changed is no record', () => {
    for (let index = 0; index < whole.length; index += 1) {
      const changed = Buffer.from(whole);
      changed[index] = (changed[index] ?? 0) ^ 0x10;
      expect(decodeRecord(changed, 0)).toBeUndefined();
    }
  });

  test('of zeros, as a file system leaves after a crash, is no record', () => {
    expect(decodeRecord(Buffer.alloc(64), 0)).toBeUndefined();
  });
});
