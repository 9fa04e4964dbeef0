/** Signed messages by the Standard Webhooks specification: HMAC-SHA-256 over id, time and body. */

import { concatBytes, fromBase64, toBase64, utf8 } from '../../shared/encoding.ts';
import { constantTimeEqual } from '../../shared/ids.ts';

export const WEBHOOK_TOLERANCE_MS = 300_000;
const SECRET_BYTES = 32;
const SECRET_PREFIX = 'whsec_';
const MAX_SIGNATURES = 10;

export interface WebhookHeaders {
  id: string;
  timestamp: string;
  signature: string;
}

export function newWebhookSecret(): string {
  return `${SECRET_PREFIX}${toBase64(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)))}`;
}

/** When it was sent; undefined where it is not signed with the secret, or not now. */
export async function verifiedAtMs(
  secret: string,
  { id, timestamp, signature }: WebhookHeaders,
  body: Uint8Array,
): Promise<number | undefined> {
  if (!/^\d{1,12}$/.test(timestamp)) return undefined;
  const sentAtMs = Number(timestamp) * 1_000;
  if (Math.abs(Date.now() - sentAtMs) > WEBHOOK_TOLERANCE_MS) return undefined;
  const expected = await signatureOf(secret, { id, timestamp }, body);
  if (expected === undefined) return undefined;
  const given = signature.split(' ').slice(0, MAX_SIGNATURES);
  return given.some((one) => constantTimeEqual(one, expected)) ? sentAtMs : undefined;
}

/** Undefined where the secret is none. */
export async function signatureOf(
  secret: string,
  { id, timestamp }: Pick<WebhookHeaders, 'id' | 'timestamp'>,
  body: Uint8Array,
): Promise<string | undefined> {
  const bytes = fromBase64(secret.slice(SECRET_PREFIX.length));
  if (bytes === undefined) return undefined;
  const key = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  const signed = concatBytes([utf8(`${id}.${timestamp}.`), body]);
  return `v1,${toBase64(new Uint8Array(await crypto.subtle.sign('HMAC', key, signed)))}`;
}
