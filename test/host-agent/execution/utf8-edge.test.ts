import { expect, test } from 'vitest';
import { continuationPrefixLength, incompleteSuffixLength } from '../../../host-agent/execution/utf8-edge.ts';

const text = Buffer.from('aé漢😀');

test('the incomplete suffix of any beginning of a text is what its last character has begun', () => {
  const edges = [0, 1, 3, 6, 10];
  for (let length = 0; length <= text.length; length += 1) {
    const lastEdge = edges.findLast((edge) => edge <= length) ?? 0;
    expect(incompleteSuffixLength(text.subarray(0, length))).toBe(length - lastEdge);
  }
});

test.each([
  ['continuation bytes alone', [0x80, 0x80, 0x80]],
  ['an impossible lead byte', [0x41, 0xff]],
  ['an overlong lead byte', [0xc0]],
  ['a lead byte beyond Unicode', [0xf5, 0x80]],
])('%s are not the beginning of a character', (_, bytes) => {
  expect(incompleteSuffixLength(Uint8Array.from(bytes))).toBe(0);
});

test('the continuation prefix of any end of a text is the rest of the character that was cut', () => {
  const edges = [0, 1, 3, 6, 10];
  for (let start = 0; start <= text.length; start += 1) {
    const nextEdge = edges.find((edge) => edge >= start) ?? text.length;
    expect(continuationPrefixLength(text.subarray(start))).toBe(nextEdge - start);
  }
});
