/** Signed messages by the Standard Webhooks specification: HMAC-SHA-256 over id, time and body. */

import { fromBase64, toBase64, toBase64Url, utf8 } from '../../shared/encoding.ts';
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
  const bytes = fromBase64(secret.slice(SECRET_PREFIX.length));
  if (bytes === undefined) return undefined;
  const key = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  const head = utf8(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + body.length);
  signed.set(head);
  signed.set(body, head.length);
  const expected = `v1,${toBase64(new Uint8Array(await crypto.subtle.sign('HMAC', key, signed)))}`;
  const given = signature.split(' ').slice(0, MAX_SIGNATURES);
  return given.some((one) => constantTimeEqual(one, expected)) ? sentAtMs : undefined;
}

const TAG_BYTES = 16;

/** Names a source in an address, so that only an address of this edge wakes an object. */
export async function webhookHandle(tagKey: CryptoKey, tenant: string, source: string): Promise<string> {
  return `${tenant}.${source}.${await tagOf(tagKey, tenant, source)}`;
}

export async function ownerOfHandle(
  tagKey: CryptoKey,
  handle: string,
): Promise<{ tenant: string; source: string } | undefined> {
  // A tenant's name may have dots, the other parts have none.
  const match = /^(.{1,64})\.([a-z0-9_-]{1,32})\.([A-Za-z0-9_-]{22})$/.exec(handle);
  const [, tenant, source, tag] = match ?? [];
  if (tenant === undefined || source === undefined || tag === undefined) return undefined;
  return constantTimeEqual(tag, await tagOf(tagKey, tenant, source)) ? { tenant, source } : undefined;
}

async function tagOf(tagKey: CryptoKey, tenant: string, source: string): Promise<string> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`source-webhook\n${tenant}\n${source}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}
