import { beforeAll, describe, expect, test } from 'vitest';
import { verifySignature } from '../../../host-agent/edge/verify-signature.ts';
import { generatePrivateJwk, importPrivateKey, importPublicKey } from '../../../shared/ed25519.ts';
import { utf8 } from '../../../shared/encoding.ts';

const message = utf8('a grant');
let key: CryptoKey;
let signature: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  const jwk = await generatePrivateJwk();
  const imported = await importPublicKey(jwk);
  if (imported === undefined) throw new Error('the key was not imported');
  key = imported.key;
  signature = new Uint8Array(await crypto.subtle.sign('Ed25519', await importPrivateKey(jwk), message));
});

describe('the check of a signature', () => {
  test('takes what WebCrypto signed', () => {
    expect(verifySignature(key, message, signature)).toBe(true);
  });

  test('refuses another message, and a signature with any one bit changed', () => {
    expect(verifySignature(key, utf8('a grand'), signature)).toBe(false);
    for (let bit = 0; bit < signature.length * 8; bit += 1) {
      const changed = Uint8Array.from(signature);
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(verifySignature(key, message, changed)).toBe(false);
    }
  });

  test.each([0, 63, 65])('refuses a signature of %i bytes', (bytes) => {
    expect(verifySignature(key, message, new Uint8Array(bytes))).toBe(false);
  });

  test('refuses the signature of another key', async () => {
    const other = await importPublicKey(await generatePrivateJwk());
    expect(other && verifySignature(other.key, message, signature)).toBe(false);
  });
});
