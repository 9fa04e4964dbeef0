/**
 * The edge's key set: which keys sign grants and which counter-sign receipts. Signed by the edge's root key, which a
 * host pins at enrolment, and numbered, so that an older set cannot be played back.
 */
import { compactVerify, SignJWT } from 'jose';
import * as z from 'zod';
import { importPublicKey, PublicJwkSchema } from './ed25519.ts';
import { failure, type Outcome, success } from './errors.ts';
import type { GrantSigner } from './grant.ts';
import { KeyIdSchema } from './ids.ts';

export const KEY_SET_TYPE = 'edge-keys+jwt';

/** Validity bounds are epoch seconds; `null` is open. A revoked key verifies nothing signed at or after `revoked_at`. */
export const DatedKeySchema = z.object({
  kid: KeyIdSchema,
  jwk: PublicJwkSchema,
  not_before: z.int().nullable(),
  not_after: z.int().nullable(),
  revoked_at: z.int().nullable(),
});
export type DatedKey = z.infer<typeof DatedKeySchema>;

export const KeySetSchema = z.object({
  iss: z.string(),
  version: z.int().min(1),
  grant_keys: z.array(DatedKeySchema).min(1).max(8),
  receipt_keys: z.array(DatedKeySchema).min(1).max(8),
});
export type KeySet = z.infer<typeof KeySetSchema>;

export async function signKeySet(keySet: KeySet, root: GrantSigner): Promise<string> {
  return new SignJWT({ ...keySet })
    .setProtectedHeader({ alg: 'Ed25519', typ: KEY_SET_TYPE, kid: root.keyId })
    .sign(root.privateKey);
}

/** Verifies with the pinned root key and refuses a version below `lowestVersion`. */
export async function verifyKeySet(
  token: string,
  root: CryptoKey,
  lowestVersion: number,
): Promise<Outcome<KeySet>> {
  let payload: unknown;
  try {
    const verified = await compactVerify(token, root, { algorithms: ['Ed25519'] });
    if (verified.protectedHeader.typ !== KEY_SET_TYPE) return failure('grant_invalid', 'not a key set');
    payload = JSON.parse(new TextDecoder().decode(verified.payload));
  } catch {
    return failure('grant_invalid', 'the key set is not signed by the pinned root key');
  }
  const parsed = KeySetSchema.safeParse(payload);
  if (!parsed.success) return failure('grant_invalid', 'the key set does not have its fields');
  if (parsed.data.version < lowestVersion) {
    return failure('key_set_rollback', `version ${parsed.data.version} is below the pinned ${lowestVersion}`);
  }
  return success(parsed.data);
}

export async function liveKeys(keys: readonly DatedKey[], nowS: number): Promise<Map<string, CryptoKey>> {
  const live = new Map<string, CryptoKey>();
  for (const dated of keys) {
    if (!isLiveAt(dated, nowS)) continue;
    const imported = await importPublicKey(dated.jwk);
    if (imported !== undefined) live.set(dated.kid, imported.key);
  }
  return live;
}

export function isLiveAt(key: DatedKey, atS: number): boolean {
  return (
    (key.not_before === null || atS >= key.not_before) &&
    (key.not_after === null || atS <= key.not_after) &&
    (key.revoked_at === null || atS < key.revoked_at)
  );
}
