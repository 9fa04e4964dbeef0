/** An Ed25519 key out of a secret: what is derived for one purpose says nothing about any other. */
import { keyIdOf, PublicJwkSchema } from '../../shared/ed25519.ts';
import { concatBytes, utf8 } from '../../shared/encoding.ts';

export interface SigningMaterial {
  keyId: string;
  privateKey: CryptoKey;
  publicKey: CryptoKey;
}

/** PKCS #8 of an Ed25519 private key (RFC 8410), up to its 32 bytes. */
const PKCS8_PREFIX = Uint8Array.from([
  0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
]);
const SEED_BITS = 256;

export async function signingMaterialOf(
  secret: Uint8Array<ArrayBuffer>,
  purpose: string,
): Promise<SigningMaterial> {
  const root = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits']);
  const derivation = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(0), info: utf8(purpose) };
  const seed = new Uint8Array(await crypto.subtle.deriveBits(derivation, root, SEED_BITS));
  const pkcs8 = concatBytes([PKCS8_PREFIX, seed]);
  // Extractable only until its public part is known.
  const pair = await crypto.subtle.importKey('pkcs8', pkcs8, 'Ed25519', true, ['sign']);
  const jwk = PublicJwkSchema.parse(await crypto.subtle.exportKey('jwk', pair));
  const publicKey = await crypto.subtle.importKey(
    'jwk',
    { kty: jwk.kty, crv: jwk.crv, x: jwk.x },
    'Ed25519',
    true,
    ['verify'],
  );
  const privateKey = await crypto.subtle.importKey('pkcs8', pkcs8, 'Ed25519', false, ['sign']);
  return { keyId: await keyIdOf(jwk), privateKey, publicKey };
}
