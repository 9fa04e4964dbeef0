/** Text or bytes: how the content of a file is given in a result. */
import { toBase64 } from '../../../shared/encoding.ts';

export type Encoding = 'utf-8' | 'base64';

export interface EncodedContent {
  encoding: Encoding;
  content: string;
  /** Bytes of the file that `content` stands for. */
  lengthBytes: number;
}

export interface ContentRequest {
  bytes: Uint8Array;
  /** Undefined: text where the bytes are UTF-8, else base64. */
  encoding: Encoding | undefined;
  /** Whether more of the file follows, so that the last character may be cut. */
  moreFollows: boolean;
}

/** Undefined when UTF-8 was asked for and the bytes are not. */
export function encodeContent({ bytes, encoding, moreFollows }: ContentRequest): EncodedContent | undefined {
  if (encoding !== 'base64') {
    const whole = moreFollows ? bytes.subarray(0, bytes.length - cutCharacterBytes(bytes)) : bytes;
    const text = decodeUtf8(whole);
    if (text !== undefined) return { encoding: 'utf-8', content: text, lengthBytes: whole.length };
    if (encoding === 'utf-8') return undefined;
  }
  return { encoding: 'base64', content: toBase64(bytes), lengthBytes: bytes.length };
}

/** Keeps a byte order mark, as any other character of the file. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

const LONGEST_CHARACTER_BYTES = 4;

/** Bytes at the end that begin a character without ending it; 0 when the last character is whole. */
function cutCharacterBytes(bytes: Uint8Array): number {
  for (let back = 1; back < LONGEST_CHARACTER_BYTES && back <= bytes.length; back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte >= 0xc0) return back < characterBytes(byte) ? back : 0;
    if (byte < 0x80) return 0;
  }
  return 0;
}

function characterBytes(leadByte: number): number {
  if (leadByte >= 0xf0) return 4;
  return leadByte >= 0xe0 ? 3 : 2;
}
