/** Ed25519 as Node's own module checks it: at once. WebCrypto does it on another thread, and the trip costs more than the check. */
import { KeyObject, verify } from 'node:crypto';
import type { VerifySignature } from '../../shared/grant.ts';

const keyObjects = new WeakMap<CryptoKey, KeyObject>();

export const verifySignature: VerifySignature = (key, message, signature) =>
  verify(null, message, keyObjectOf(key), signature);

function keyObjectOf(key: CryptoKey): KeyObject {
  const known = keyObjects.get(key);
  if (known !== undefined) return known;
  const made = KeyObject.from(key);
  keyObjects.set(key, made);
  return made;
}
