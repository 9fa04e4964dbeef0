/** The keys of what the edge itself keeps in R2: one for each thing, made of a secret of the edge when it is needed. */
import { utf8 } from '../../shared/encoding.ts';

/** What is stored, and of whom: every part of it is in the key. */
export interface ContentOwner {
  kind: 'artifact' | 'output';
  tenant: string;
  id: string;
}

export async function contentKey(root: CryptoKey, { kind, tenant, id }: ContentOwner): Promise<CryptoKey> {
  const derivation = {
    name: 'HKDF',
    hash: 'SHA-256',
    salt: new Uint8Array(0),
    info: utf8(JSON.stringify([kind, tenant, id])),
  };
  const aes = { name: 'AES-GCM', length: 256 };
  return crypto.subtle.deriveKey(derivation, root, aes, false, ['encrypt', 'decrypt']);
}
