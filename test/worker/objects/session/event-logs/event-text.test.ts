import { expect, test } from 'vitest';
import { utf8 } from '../../../../../shared/encoding.ts';
import {
  bytesOf,
  plain,
  type TextPart,
} from '../../../../../worker/objects/session/event-logs/event-text.ts';

/** As a stream gives its bytes: what is not UTF-8 in them takes more as text than it did before. */
function quoted(bytes: Uint8Array): TextPart {
  const text = new TextDecoder().decode(bytes);
  const json = JSON.stringify(text);
  return { text: json, bytes: bytes.length + json.length - text.length };
}

test.each([
  ['ASCII', utf8('one\ntwo "three" \\ \u0001')],
  ['characters of two to four bytes', utf8('é € 😀')],
  ['bytes that are not UTF-8', Uint8Array.of(0x61, 0xff, 0xfe, 0x62, 0xc3)],
  ['nothing', new Uint8Array(0)],
])('an event with %s is the bytes of its parts', (_, bytes) => {
  const parts = [plain('data: '), quoted(bytes), plain(',"encoding":"utf-8"}\n\n')];
  expect(bytesOf(parts)).toEqual(utf8(parts.map(({ text }) => text).join('')));
});

test('parts without text are no bytes', () => {
  expect(bytesOf([plain(''), plain('')])).toHaveLength(0);
});
