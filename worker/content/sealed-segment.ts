/** A stretch of bytes at rest: sealed by itself, and bound to its place, so that none can be put in place of another. */
import { concatBytes, utf8 } from '../../shared/encoding.ts';

const IV_BYTES = 12;
const TAG_BYTES = 16;
/** What a segment is longer sealed than plain. */
export const SEAL_BYTES = IV_BYTES + TAG_BYTES;

export async function sealSegment(
  key: CryptoKey,
  place: string,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const sealed = await crypto.subtle.encrypt(parameters(iv, place), key, bytes);
  return concatBytes([iv, new Uint8Array(sealed)]);
}

/** Throws for what was changed, or was sealed for another place or under another key. */
export async function openSegment(
  key: CryptoKey,
  place: string,
  sealed: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const [iv, rest] = [sealed.subarray(0, IV_BYTES), sealed.subarray(IV_BYTES)];
  return new Uint8Array(await crypto.subtle.decrypt(parameters(iv, place), key, rest));
}

function parameters(iv: Uint8Array<ArrayBuffer>, place: string) {
  return { name: 'AES-GCM', iv, additionalData: utf8(place) };
}
