/**
 * The token in a signed address of an artifact: one method on one artifact of one owner, for a quarter of an hour at most.
 * A type, an audience and a key of their own, so that no other door takes it, and this one takes no other.
 */
import { jwtVerify, SignJWT } from 'jose';
import * as z from 'zod';
import { ArtifactIdSchema, ArtifactNameSchema, MAX_ARTIFACT_URL_LIFETIME_S } from '../../shared/artifact.ts';
import { fromBase64Url } from '../../shared/encoding.ts';
import { TenantSchema } from '../../shared/ids.ts';
import { SubjectSchema } from '../../shared/tenant.ts';

const TYPE = 'artifact-url+jwt';
const ALGORITHM = 'HS256';
const AUDIENCE = 'artifacts';
const MAX_TOKEN_LENGTH = 2_048;

const OfOwner = z.strictObject({
  tenant: TenantSchema,
  sub: SubjectSchema,
  name: ArtifactNameSchema,
  /** Of a download, the one that it gives; of an upload, the one that it makes. */
  artifact: ArtifactIdSchema,
  /** `jti` and API key of the token that asked for it: what bars them bars the address. */
  token: z.string(),
  key: z.string().nullable(),
});
export const ArtifactGrantSchema = z.discriminatedUnion('method', [
  OfOwner.extend({ method: z.literal('GET') }),
  OfOwner.extend({ method: z.literal('PUT'), max_bytes: z.int().min(1) }),
]);
export type ArtifactGrant = z.infer<typeof ArtifactGrantSchema>;

export interface UrlAuthority {
  origin: string;
  artifactUrlKey: CryptoKey;
}

export async function signArtifactGrant(
  grant: ArtifactGrant,
  expiresInS: number,
  { origin, artifactUrlKey }: UrlAuthority,
): Promise<{ token: string; expiresAtMs: number }> {
  const nowS = Math.floor(Date.now() / 1000);
  const token = await new SignJWT({ ...grant })
    .setProtectedHeader({ alg: ALGORITHM, typ: TYPE })
    .setIssuer(origin)
    .setAudience(AUDIENCE)
    .setIssuedAt(nowS)
    .setExpirationTime(nowS + expiresInS)
    .sign(artifactUrlKey);
  return { token, expiresAtMs: (nowS + expiresInS) * 1000 };
}

/** What the token allows, and since when; undefined for whatever else. */
export async function verifyArtifactGrant(
  token: string,
  { origin, artifactUrlKey }: UrlAuthority,
): Promise<{ grant: ArtifactGrant; issuedAtMs: number } | undefined> {
  if (token.length > MAX_TOKEN_LENGTH) return undefined;
  // One token has one spelling: decoders let stray bits at the end of base64url pass.
  if (token.split('.').some((part) => fromBase64Url(part) === undefined)) return undefined;
  try {
    const { payload } = await jwtVerify(token, artifactUrlKey, {
      algorithms: [ALGORITHM],
      typ: TYPE,
      issuer: origin,
      audience: AUDIENCE,
      requiredClaims: ['exp', 'iat'],
      maxTokenAge: MAX_ARTIFACT_URL_LIFETIME_S,
    });
    const { iss: _iss, aud: _aud, exp: _exp, iat, ...claims } = payload;
    const grant = ArtifactGrantSchema.safeParse(claims);
    return grant.success && iat !== undefined ? { grant: grant.data, issuedAtMs: iat * 1000 } : undefined;
  } catch {
    return undefined;
  }
}
