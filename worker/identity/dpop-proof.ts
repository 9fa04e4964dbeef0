/**
 * Proofs of possession (DPoP, RFC 9449): a token that is bound to a key is taken only with a proof by that key, for this
 * request and this moment. Whoever stole the token, or saw a proof, has nothing.
 */
import { calculateJwkThumbprint, errors, importJWK, jwtVerify } from 'jose';
import * as z from 'zod';
import { fromBase64Url, toBase64Url, utf8 } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';
import { MAX_CLOCK_SKEW_S } from '../../shared/limits.ts';
import { parseStrictJson } from '../json/strict-json.ts';

export const DPOP_ALGORITHMS = ['Ed25519', 'ES256'] as const;
export const MAX_PROOF_AGE_S = 60;
const MAX_PROOF_BYTES = 4_096;
const BOUNDS = { maxDepth: 4, maxValues: 64 };

const Coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/);
/** Strict: a key with a private part, or a parameter that would be followed, is no header of a proof. */
const HeaderSchema = z.strictObject({
  typ: z.literal('dpop+jwt'),
  alg: z.enum(DPOP_ALGORITHMS),
  kid: z.string().max(128).optional(),
  jwk: z.discriminatedUnion('kty', [
    z.strictObject({
      kty: z.literal('OKP'),
      crv: z.literal('Ed25519'),
      x: Coordinate,
      kid: z.string().max(128).optional(),
      alg: z.string().max(16).optional(),
      use: z.literal('sig').optional(),
    }),
    z.strictObject({
      kty: z.literal('EC'),
      crv: z.literal('P-256'),
      x: Coordinate,
      y: Coordinate,
      kid: z.string().max(128).optional(),
      alg: z.string().max(16).optional(),
      use: z.literal('sig').optional(),
    }),
  ]),
});

const ClaimsSchema = z.object({
  jti: z.string().min(1).max(256),
  htm: z.string(),
  htu: z.string().max(2_048),
  iat: z.number(),
  ath: z.string(),
});

export interface ProvenRequest {
  /** Value of the `DPoP` header. */
  proof: string | null;
  token: string;
  /** Thumbprint of the key that the token is bound to. */
  boundTo: string;
  method: string;
  /** Without query and fragment. */
  url: string;
  nowMs: number;
}

/** True for the first who brings the proof of this key with this id. Asked once all else holds. */
export type TakeProof = (proof: { key: string; proofId: string }) => Promise<Outcome<boolean>>;

/** Undefined where the proof holds. */
export async function proofFault(request: ProvenRequest, take: TakeProof): Promise<Failure | undefined> {
  const { proof } = request;
  if (proof === null || proof === '') return refuse('a DPoP header with one proof is needed');
  // Fetch joins several headers of a name with a comma, which no proof contains.
  if (proof.includes(',') || proof.length > MAX_PROOF_BYTES)
    return refuse('one proof of a few kilobytes is needed');
  const [headerPart = '', claimsPart = '', signaturePart = '', ...more] = proof.split('.');
  const header = HeaderSchema.safeParse(jsonIn(headerPart)).data;
  const claims = ClaimsSchema.safeParse(jsonIn(claimsPart)).data;
  const isWhole = more.length === 0 && fromBase64Url(signaturePart) !== undefined;
  if (header === undefined || claims === undefined || !isWhole)
    return refuse('the proof does not have its form');
  if ((header.alg === 'ES256') !== (header.jwk.kty === 'EC')) return refuse('alg is not one of the key');
  if ((await calculateJwkThumbprint(header.jwk)) !== request.boundTo)
    return refuse('the proof is of another key');
  const about = await claimFault(claims, request);
  if (about !== undefined) return refuse(about);
  if (!(await verifies(proof, header))) return refuse('the signature of the proof does not verify');
  const isFirst = await take({ key: request.boundTo, proofId: claims.jti });
  if (!isFirst.ok) return isFirst;
  return isFirst.value ? undefined : refuse('the proof was used before');
}

async function claimFault(
  { htm, htu, iat, ath }: z.infer<typeof ClaimsSchema>,
  { method, url, token, nowMs }: ProvenRequest,
): Promise<string | undefined> {
  if (htm !== method) return 'htm is another method';
  if (!URL.canParse(htu)) return 'htu is no address';
  const named = new URL(htu);
  if (`${named.origin}${named.pathname}` !== url || named.username !== '') return 'htu is another address';
  const ageS = nowMs / 1_000 - iat;
  if (!(ageS <= MAX_PROOF_AGE_S && ageS >= -MAX_CLOCK_SKEW_S)) return 'iat is not of this moment';
  const digest = await crypto.subtle.digest('SHA-256', utf8(token));
  return ath === toBase64Url(new Uint8Array(digest)) ? undefined : 'ath is the digest of another token';
}

async function verifies(proof: string, { alg, jwk }: z.infer<typeof HeaderSchema>): Promise<boolean> {
  try {
    const { kty, crv, x } = jwk;
    const key = await importJWK(jwk.kty === 'EC' ? { kty, crv, x, y: jwk.y } : { kty, crv, x }, alg);
    // Its times are judged above: only the signature counts here.
    await jwtVerify(proof, key, {
      algorithms: [alg],
      typ: 'dpop+jwt',
      clockTolerance: Number.MAX_SAFE_INTEGER,
    });
    return true;
  } catch (error: unknown) {
    if (error instanceof errors.JOSEError || error instanceof DOMException) return false;
    throw error;
  }
}

function jsonIn(part: string): unknown {
  const bytes = fromBase64Url(part);
  if (bytes === undefined) return undefined;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    const parsed = parseStrictJson(text, BOUNDS);
    return parsed.ok ? parsed.value : undefined;
  } catch {
    return undefined;
  }
}

function refuse(detail: string): Failure {
  return failure('unauthenticated', detail);
}
