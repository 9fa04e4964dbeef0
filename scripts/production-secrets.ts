/** The secrets of a deployed edge: made anew, or with one key in the place of another. */
import * as z from 'zod';
import { sha256Hex } from '../shared/digest.ts';
import { generatePrivateJwk, keyIdOf, PrivateJwkSchema, publicPart } from '../shared/ed25519.ts';
import { toBase64Url } from '../shared/encoding.ts';
import type { DatedKey } from '../shared/key-set.ts';
import { GRANT_LIFETIME_S, MAX_CLOCK_SKEW_S } from '../shared/limits.ts';

const SECRET_BYTES = 32;

/** By name of the binding, as text: what `wrangler secret bulk` reads. */
export const SecretsSchema = z.strictObject({
  EDGE_ROOT_KEY: z.string(),
  GRANT_KEY: z.string(),
  RECEIPT_KEY: z.string(),
  ID_SECRET: z.string(),
  OPERATOR_TOKEN_SHA256: z.string(),
});
export type Secrets = z.infer<typeof SecretsSchema>;

export async function newSecrets(): Promise<{ secrets: Secrets; operatorToken: string }> {
  const operatorToken = `op_${randomText()}`;
  const key = async (): Promise<string> => JSON.stringify(await generatePrivateJwk());
  return {
    operatorToken,
    secrets: {
      EDGE_ROOT_KEY: await key(),
      GRANT_KEY: await key(),
      RECEIPT_KEY: await key(),
      ID_SECRET: randomText(),
      OPERATOR_TOKEN_SHA256: await sha256Hex(operatorToken),
    },
  };
}

/** A grant that the former key has signed must still hold on a host that has heard of the new one. */
export async function rotate(
  secrets: Secrets,
  kind: 'grant' | 'receipt',
  nowS: number,
): Promise<{ secrets: Secrets; former: DatedKey }> {
  const name = kind === 'grant' ? 'GRANT_KEY' : 'RECEIPT_KEY';
  const jwk = publicPart(PrivateJwkSchema.parse(JSON.parse(secrets[name])));
  return {
    secrets: { ...secrets, [name]: JSON.stringify(await generatePrivateJwk()) },
    former: {
      kid: await keyIdOf(jwk),
      jwk,
      not_before: null,
      not_after: kind === 'grant' ? nowS + DEPLOY_S + GRANT_LIFETIME_S + MAX_CLOCK_SKEW_S : null,
      revoked_at: null,
    },
  };
}

function randomText(): string {
  return toBase64Url(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
}

/** Between the making of the key and the last isolate that still signs with the former one. */
const DEPLOY_S = 86_400;
