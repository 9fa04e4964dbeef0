/** SHA-256 as lower-case hex, the form that grants and receipts carry. */
import { utf8 } from './encoding.ts';

export async function sha256Hex(data: Uint8Array | string): Promise<string> {
  const bytes = typeof data === 'string' ? utf8(data) : data;
  // WebCrypto wants a view over a plain ArrayBuffer; a copy is made only for other backings.
  const view = bytes.buffer instanceof ArrayBuffer ? bytes : new Uint8Array(bytes);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', view as Uint8Array<ArrayBuffer>));
  return hex(digest);
}

const HEX_BYTES = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

export function hex(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += HEX_BYTES[byte] ?? '';
  return text;
}
