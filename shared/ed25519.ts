/** Ed25519 keys as JWK (RFC 8037): import, export and the checks that WebCrypto engines leave out. */

import { calculateJwkThumbprint } from 'jose';
import * as z from 'zod';
import { hex } from './digest.ts';
import { fromBase64Url } from './encoding.ts';

export const PublicJwkSchema = z.object({
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  x: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  kid: z.string().optional(),
});
export type PublicJwk = z.infer<typeof PublicJwkSchema>;

export const PrivateJwkSchema = PublicJwkSchema.extend({ d: z.string().regex(/^[A-Za-z0-9_-]{43}$/) });
export type PrivateJwk = z.infer<typeof PrivateJwkSchema>;

/** RFC 7638 thumbprint: the key id of every Ed25519 key of ours. */
export async function keyIdOf(jwk: PublicJwk): Promise<string> {
  return calculateJwkThumbprint({ kty: jwk.kty, crv: jwk.crv, x: jwk.x });
}

export function publicPart(jwk: PublicJwk): PublicJwk {
  return { kty: jwk.kty, crv: jwk.crv, x: jwk.x, ...(jwk.kid === undefined ? {} : { kid: jwk.kid }) };
}

export async function importPublicKey(
  jwk: PublicJwk,
): Promise<{ bytes: Uint8Array; key: CryptoKey } | undefined> {
  const bytes = fromBase64Url(jwk.x);
  if (bytes?.length !== 32 || isSmallOrderPoint(bytes)) return undefined;
  const key = await crypto.subtle.importKey(
    'jwk',
    { kty: 'OKP', crv: 'Ed25519', x: jwk.x },
    'Ed25519',
    true,
    ['verify'],
  );
  return { bytes, key };
}

export async function importPrivateKey(jwk: PrivateJwk): Promise<CryptoKey> {
  const { kty, crv, x, d } = jwk;
  return crypto.subtle.importKey('jwk', { kty, crv, x, d }, 'Ed25519', false, ['sign']);
}

export async function generatePrivateJwk(): Promise<PrivateJwk> {
  const pair = await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify']);
  if (!('privateKey' in pair)) throw new TypeError('Ed25519 key generation gave no pair');
  const jwk = PrivateJwkSchema.parse(await crypto.subtle.exportKey('jwk', pair.privateKey));
  return { kty: jwk.kty, crv: jwk.crv, x: jwk.x, d: jwk.d, kid: await keyIdOf(jwk) };
}

/**
 * Encodings of the points of order 1, 2, 4 and 8 with the sign bit cleared, the non-canonical ones among them
 * (y = p and y = p + 1). A signature by such a key is valid for many messages.
 */
const SMALL_ORDER = new Set([
  `00${'00'.repeat(31)}`,
  `01${'00'.repeat(31)}`,
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  `ec${'ff'.repeat(30)}7f`,
  `ed${'ff'.repeat(30)}7f`,
  `ee${'ff'.repeat(30)}7f`,
]);

export function isSmallOrderPoint(point: Uint8Array): boolean {
  if (point.length !== 32) return true;
  const unsigned = Uint8Array.from(point);
  unsigned[31] = (unsigned[31] ?? 0) & 0x7f;
  return SMALL_ORDER.has(hex(unsigned));
}
