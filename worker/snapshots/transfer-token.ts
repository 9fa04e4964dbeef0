/** The tokens by which one host brings or fetches one snapshot. A type and a key of their own: no other door takes them. */
import { jwtVerify, SignJWT } from 'jose';
import * as z from 'zod';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { HostIdSchema, SessionIdSchema, SnapshotIdSchema, TenantSchema } from '../../shared/ids.ts';
import { TRANSFER_TOKEN_LIFETIME_S } from '../../shared/snapshot.ts';

const TYPE = 'snapshot-transfer+jwt';
const ALGORITHM = 'HS256';
const AUDIENCE = 'snapshots';

const TransferClaimsSchema = z.object({
  host: HostIdSchema,
  tenant: TenantSchema,
  session: SessionIdSchema,
  snapshot: SnapshotIdSchema,
  epoch: z.int().min(1),
  direction: z.enum(['put', 'get']),
});
export type TransferClaims = z.infer<typeof TransferClaimsSchema>;

export interface TokenAuthority {
  origin: string;
  transferKey: CryptoKey;
}

export async function signTransferToken(
  claims: TransferClaims,
  { origin, transferKey }: TokenAuthority,
): Promise<string> {
  const nowS = Math.floor(Date.now() / 1000);
  return new SignJWT({ ...claims })
    .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
    .setIssuer(origin)
    .setAudience(AUDIENCE)
    .setIssuedAt(nowS)
    .setExpirationTime(nowS + TRANSFER_TOKEN_LIFETIME_S)
    .sign(transferKey);
}

export async function verifyTransferToken(
  authorization: string | null,
  { origin, transferKey }: TokenAuthority,
): Promise<Outcome<TransferClaims>> {
  const token = /^Bearer ([A-Za-z0-9._-]{1,4096})$/.exec(authorization ?? '')?.[1];
  if (token === undefined) return refused();
  try {
    const { payload } = await jwtVerify(token, transferKey, {
      algorithms: [ALGORITHM],
      typ: TYPE,
      issuer: origin,
      audience: AUDIENCE,
      requiredClaims: ['exp', 'iat'],
      maxTokenAge: TRANSFER_TOKEN_LIFETIME_S,
    });
    const claims = TransferClaimsSchema.safeParse(payload);
    return claims.success ? success(claims.data) : refused();
  } catch {
    return refused();
  }
}

function refused(): Outcome<never> {
  return failure('unauthenticated', 'no valid transfer token');
}
