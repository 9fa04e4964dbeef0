/** Public keys of token issuers: each is bound to the algorithms of its own kind, and to no other. */
import { importJWK } from 'jose';
import * as z from 'zod';
import { isSmallOrderPoint } from '../../shared/ed25519.ts';
import { fromBase64Url } from '../../shared/encoding.ts';

/** `EdDSA` is the former name of `Ed25519` (RFC 9864); an issuer that still signs with it must list it. */
export const TOKEN_ALGORITHMS = ['Ed25519', 'EdDSA', 'RS256', 'ES256'] as const;
export type TokenAlgorithm = (typeof TOKEN_ALGORITHMS)[number];

export const TokenKeyIdSchema = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/);

export interface VerificationKey {
  keyId: string;
  algorithms: readonly TokenAlgorithm[];
  key: CryptoKey;
}

const Common = {
  kid: TokenKeyIdSchema,
  alg: z.string().optional(),
  use: z.literal('sig').optional(),
  key_ops: z.array(z.string()).optional(),
  // A private or symmetric key in a published set is a leak, and nothing that a leaked key signs is trusted.
  d: z.undefined().optional(),
  k: z.undefined().optional(),
};
const Coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/);
const MIN_RSA_MODULUS_BYTES = 256;
const MAX_RSA_MODULUS_BYTES = 1024;

const IssuerJwkSchema = z.discriminatedUnion('kty', [
  z.object({ ...Common, kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: Coordinate }),
  z.object({ ...Common, kty: z.literal('EC'), crv: z.literal('P-256'), x: Coordinate, y: Coordinate }),
  z.object({
    ...Common,
    kty: z.literal('RSA'),
    n: z.string().max(2 * MAX_RSA_MODULUS_BYTES),
    e: z.string().min(1).max(8),
  }),
]);
type IssuerJwk = z.infer<typeof IssuerJwkSchema>;

const ALGORITHMS_OF: Record<IssuerJwk['kty'], readonly TokenAlgorithm[]> = {
  OKP: ['Ed25519', 'EdDSA'],
  EC: ['ES256'],
  RSA: ['RS256'],
};

/** The key, or `undefined` where it is not one that may verify this issuer's tokens. */
export async function importVerificationKey(
  input: unknown,
  allowed: ReadonlySet<TokenAlgorithm>,
): Promise<VerificationKey | undefined> {
  const jwk = IssuerJwkSchema.safeParse(input).data;
  if (jwk === undefined || jwk.key_ops?.includes('verify') === false || !isStrong(jwk)) return undefined;
  const algorithms = ALGORITHMS_OF[jwk.kty].filter(
    (algorithm) => allowed.has(algorithm) && (jwk.alg === undefined || jwk.alg === algorithm),
  );
  const first = algorithms[0];
  if (first === undefined) return undefined;
  try {
    const key = await importJWK(materialOf(jwk), first);
    return key instanceof Uint8Array ? undefined : { keyId: jwk.kid, algorithms, key };
  } catch {
    return undefined;
  }
}

function isStrong(jwk: IssuerJwk): boolean {
  if (jwk.kty === 'OKP') {
    const point = fromBase64Url(jwk.x);
    return point !== undefined && !isSmallOrderPoint(point);
  }
  if (jwk.kty === 'RSA') {
    const bytes = fromBase64Url(jwk.n)?.length ?? 0;
    return bytes >= MIN_RSA_MODULUS_BYTES && bytes <= MAX_RSA_MODULUS_BYTES;
  }
  return true;
}

function materialOf(jwk: IssuerJwk): Record<string, string> & { kty: string } {
  if (jwk.kty === 'OKP') return { kty: jwk.kty, crv: jwk.crv, x: jwk.x };
  if (jwk.kty === 'EC') return { kty: jwk.kty, crv: jwk.crv, x: jwk.x, y: jwk.y };
  return { kty: jwk.kty, n: jwk.n, e: jwk.e };
}
