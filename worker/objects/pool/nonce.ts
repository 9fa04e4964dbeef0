/**
 * Nonces of enrolment. A nonce carries its expiry and a tag, so making one writes nothing and any pool can check it:
 * the request for a nonce does not name a pool yet.
 */
import { concatBytes, fromBase64Url, toBase64Url, utf8 } from '../../../shared/encoding.ts';

const NONCE_LIFETIME_MS = 60_000;
const RANDOM_BYTES = 16;
const EXPIRY_BYTES = 8;
const BODY_BYTES = RANDOM_BYTES + EXPIRY_BYTES;
const TAG_BYTES = 16;

export async function newNonce(tagKey: CryptoKey, nowMs: number): Promise<string> {
  const body = new Uint8Array(BODY_BYTES);
  crypto.getRandomValues(body.subarray(0, RANDOM_BYTES));
  new DataView(body.buffer).setBigUint64(RANDOM_BYTES, BigInt(nowMs + NONCE_LIFETIME_MS));
  return toBase64Url(concatBytes([body, await tagOf(tagKey, body)]));
}

/** When the nonce expires, in milliseconds since the epoch; `undefined` for one that is not ours or has expired. */
export async function nonceExpiry(
  tagKey: CryptoKey,
  nonce: string,
  nowMs: number,
): Promise<number | undefined> {
  const bytes = fromBase64Url(nonce);
  if (bytes?.length !== BODY_BYTES + TAG_BYTES) return undefined;
  const body = bytes.subarray(0, BODY_BYTES);
  const expected = await tagOf(tagKey, body);
  let difference = 0;
  for (let index = 0; index < TAG_BYTES; index += 1) {
    difference |= (expected[index] ?? 0) ^ (bytes[BODY_BYTES + index] ?? 0);
  }
  if (difference !== 0) return undefined;
  const expiresAtMs = Number(new DataView(bytes.buffer).getBigUint64(RANDOM_BYTES));
  return expiresAtMs > nowMs ? expiresAtMs : undefined;
}

async function tagOf(tagKey: CryptoKey, body: Uint8Array): Promise<Uint8Array> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, concatBytes([utf8('enrolment-nonce\n'), body]));
  return new Uint8Array(mac).subarray(0, TAG_BYTES);
}
