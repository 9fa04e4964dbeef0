/** Bytes of a stream as the API gives them. */
import { toBase64 } from '../../../../shared/encoding.ts';

/** U+FFFD for bytes that are not UTF-8; a byte order mark is text like any other. */
const decoder = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

export function streamText(bytes: Uint8Array, encoding: 'utf-8' | 'base64'): string {
  return encoding === 'base64' ? toBase64(bytes) : decoder.decode(bytes);
}

/** `bytes` without a character at its end that was cut in two. */
export function withoutCutEnd(bytes: Uint8Array): Uint8Array {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}

/** `bytes` without the rest of a character at its start. */
export function withoutCutStart(bytes: Uint8Array): Uint8Array {
  let start = 0;
  while (start < 3 && start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes.subarray(start);
}
