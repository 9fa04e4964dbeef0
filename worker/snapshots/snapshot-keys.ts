/** The keys of snapshots: one for each, made of a secret of the edge when it is needed, and kept nowhere. */
import { toBase64Url, utf8 } from '../../shared/encoding.ts';
import { SNAPSHOT_KEY_BYTES } from '../../shared/snapshot.ts';

/** base64url; the same for the same snapshot of the same tenant. */
export async function snapshotKey(
  root: CryptoKey,
  { tenant, snapshotId }: { tenant: string; snapshotId: string },
): Promise<string> {
  const derivation = {
    name: 'HKDF',
    hash: 'SHA-256',
    salt: new Uint8Array(0),
    info: utf8(JSON.stringify(['snapshot', tenant, snapshotId])),
  };
  const bits = await crypto.subtle.deriveBits(derivation, root, SNAPSHOT_KEY_BYTES * 8);
  return toBase64Url(new Uint8Array(bits));
}
