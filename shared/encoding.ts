/** Text and byte encodings that both Workers and Node have, with one name each. */
import { base64url } from 'jose';

const encoder = new TextEncoder();

export function utf8(text: string): Uint8Array<ArrayBuffer> {
  // Its bytes never are shared memory, which the types of some platforms leave open.
  return encoder.encode(text) as Uint8Array<ArrayBuffer>;
}

export function toBase64Url(bytes: Uint8Array): string {
  return base64url.encode(bytes);
}

/** Decodes canonical base64url only: padding, other alphabets and stray tail bits give `undefined`. */
export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) return undefined;
  try {
    const bytes = new Uint8Array(base64url.decode(text));
    return base64url.encode(bytes) === text ? bytes : undefined;
  } catch {
    return undefined;
  }
}

/** Of an even number of lower-case hexadecimal digits. */
export function fromHex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

const BINARY_STRING_STEP = 0x8000;

/** Standard base64 with padding (RFC 4648 section 4), as DSSE envelopes carry it. */
export function toBase64(bytes: Uint8Array): string {
  let binary = '';
  for (let start = 0; start < bytes.length; start += BINARY_STRING_STEP) {
    binary += String.fromCharCode(...bytes.subarray(start, start + BINARY_STRING_STEP));
  }
  return btoa(binary);
}

/** The engine's own decoder (ECMAScript 2026), where it has one: twenty times as fast as the loop. */
const nativeFromBase64: unknown = Reflect.get(Uint8Array, 'fromBase64');

/** Decodes canonical standard base64 only; anything else gives `undefined`. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  try {
    if (typeof nativeFromBase64 !== 'function') return decodeInLoop(text);
    return nativeFromBase64.call(Uint8Array, text, { lastChunkHandling: 'strict' });
  } catch {
    return undefined;
  }
}

function decodeInLoop(text: string): Uint8Array<ArrayBuffer> | undefined {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return toBase64(bytes) === text ? bytes : undefined;
}

export function concatBytes(chunks: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(chunks.reduce((total, chunk) => total + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    whole.set(chunk, offset);
    offset += chunk.length;
  }
  return whole;
}
