import { describe, expect, it } from 'vitest';
import { encodeContent } from '../../../../host-agent/sandbox/tools/file-content.ts';

const bytesOf = (text: string): Uint8Array => Buffer.from(text, 'utf8');
const whole = (bytes: Uint8Array) => encodeContent({ bytes, encoding: undefined, moreFollows: false });

describe('content of a file', () => {
  it.each([1023, 4095, 8191, 16_383, 65_535])('R57: %d letters before é漢😀 stay text', (count) => {
    const text = `${'a'.repeat(count)}é漢😀`;
    expect(whole(bytesOf(text))).toEqual({
      encoding: 'utf-8',
      content: text,
      lengthBytes: bytesOf(text).length,
    });
  });

  it('R57: keeps a byte order mark and CRLF', () => {
    expect(whole(bytesOf('\ufeffx\r\ny'))?.content).toBe('\ufeffx\r\ny');
  });

  it('is base64 where a single byte is not UTF-8, wherever it stands', () => {
    const bytes = Buffer.concat([Buffer.alloc(100_000, 'a'), Buffer.from([0xff])]);
    expect(whole(bytes)).toEqual({
      encoding: 'base64',
      content: bytes.toString('base64'),
      lengthBytes: 100_001,
    });
  });

  it('is base64 where the file itself ends within a character', () => {
    expect(whole(Buffer.from([0x61, 0xf0, 0x9f]))?.encoding).toBe('base64');
  });

  it('leaves a character that the piece cuts to the next piece', () => {
    const bytes = bytesOf('aé漢😀');
    for (let end = 1; end <= bytes.length; end += 1) {
      const piece = encodeContent({ bytes: bytes.subarray(0, end), encoding: undefined, moreFollows: true });
      expect(piece?.encoding).toBe('utf-8');
      const next = whole(bytes.subarray(piece?.lengthBytes));
      expect(`${piece?.content}${next?.content}`).toBe('aé漢😀');
    }
  });

  it('refuses text that was asked for and is none, and gives base64 when asked', () => {
    const bytes = Buffer.from([0xc3]);
    expect(encodeContent({ bytes, encoding: 'utf-8', moreFollows: false })).toBeUndefined();
    expect(encodeContent({ bytes: bytesOf('é'), encoding: 'base64', moreFollows: false })?.content).toBe(
      'w6k=',
    );
  });

  it('is text when empty', () => {
    expect(whole(new Uint8Array(0))).toEqual({ encoding: 'utf-8', content: '', lengthBytes: 0 });
  });
});
