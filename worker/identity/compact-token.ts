/** The form of an access token, checked before any cryptography: compact JWS, bounded, written one way only. */
import * as z from 'zod';
import { fromBase64Url } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { parseStrictJson } from '../json/strict-json.ts';
import { TOKEN_ALGORITHMS, TokenKeyIdSchema } from './verification-key.ts';

export const MAX_TOKEN_BYTES = 8_192;
const MAX_HEADER_BYTES = 1_024;
const BOUNDS = { maxDepth: 6, maxValues: 256 };

/** Parameters that bring keys, change what is signed, or belong to encryption. */
const REFUSED_PARAMETERS = ['jwk', 'jku', 'x5u', 'x5c', 'crit', 'b64', 'zip', 'enc', 'epk', 'p2c', 'p2s'];

const HeaderSchema = z.object({
  alg: z.enum(TOKEN_ALGORITHMS),
  kid: TokenKeyIdSchema,
  /** RFC 9068 section 2.1; media types compare without case and may carry the `application/` prefix. */
  typ: z.string().regex(/^(application\/)?at\+jwt$/i),
});

export interface DecodedToken {
  header: z.infer<typeof HeaderSchema>;
  claims: Record<string, unknown>;
}

/** Nothing in the result is verified: it says which key to verify with. */
export function decodeToken(token: string): Outcome<DecodedToken> {
  if (token.length > MAX_TOKEN_BYTES) return refuse(`the token is over ${MAX_TOKEN_BYTES} bytes`);
  const parts = token.split('.');
  const [headerPart, claimsPart, signaturePart] = parts;
  if (
    parts.length !== 3 ||
    headerPart === undefined ||
    claimsPart === undefined ||
    signaturePart === undefined
  ) {
    return refuse('the token is not a compact JWS of three parts');
  }
  if ((fromBase64Url(signaturePart)?.length ?? 0) === 0) return refuse('the signature is not base64url');
  const header = headerPart.length > MAX_HEADER_BYTES ? undefined : objectIn(headerPart);
  if (header === undefined) return refuse('the header is not one JSON object in base64url');
  const foreign = REFUSED_PARAMETERS.find((name) => Object.hasOwn(header, name));
  if (foreign !== undefined) return refuse(`the header parameter ${foreign} is not accepted`);
  const parsed = HeaderSchema.safeParse(header);
  if (!parsed.success) {
    return refuse(`the header parameter ${String(parsed.error.issues[0]?.path[0])} is not accepted`);
  }
  const claims = objectIn(claimsPart);
  if (claims === undefined) return refuse('the claims are not one bounded JSON object in base64url');
  return success({ header: parsed.data, claims });
}

const ObjectSchema = z.record(z.string(), z.unknown());

function objectIn(part: string): Record<string, unknown> | undefined {
  const bytes = fromBase64Url(part);
  if (bytes === undefined) return undefined;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
  const parsed = parseStrictJson(text, BOUNDS);
  return parsed.ok ? ObjectSchema.safeParse(parsed.value).data : undefined;
}

function refuse(detail: string): Failure {
  return failure('unauthenticated', detail);
}
