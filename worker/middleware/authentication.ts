/** From the `Authorization` header to a principal that may use the route. Query and cookies are never read. */
import { sha256Hex } from '../../shared/digest.ts';
import { utf8 } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { Configuration } from '../configuration.ts';
import { verifyAccessToken } from '../identity/access-token.ts';
import type { Principal, TenantPrincipal } from '../identity/principal.ts';
import { VerifiedTokens } from '../identity/verified-tokens.ts';
import { Refusal } from './refusal.ts';

export const PROTECTED_RESOURCE_PATH = '/.well-known/oauth-protected-resource';
const ACTOR_DIGITS = 8;

export interface Arrival {
  authorization: string | null;
  configuration: Configuration;
  nowMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
}

/** `scopes` are those that the route asks for: a caller without a token learns what to ask a token for. */
export async function authenticate(arrival: Arrival, scopes: readonly string[]): Promise<Principal> {
  const { configuration } = arrival;
  const token = readBearer(arrival.authorization);
  if (!token.ok && token.code === 'unauthenticated') {
    throw new Refusal(token, challenge(configuration, { scopes }));
  }
  if (!token.ok) throw new Refusal(token);
  // A JWS has dots, an operator's token has none.
  if (!token.value.includes('.') && (await isOperatorToken(token.value, configuration))) {
    const { operatorTokenSha256 } = configuration;
    return { kind: 'operator', actor: `operator:${operatorTokenSha256.slice(0, ACTOR_DIGITS)}` };
  }
  const tokens = verifiedTokensOf(configuration);
  const known = tokens.find(token.value, arrival.nowMs);
  if (known !== undefined) return known;
  const verified = await verifyAccessToken(token.value, {
    issuers: configuration.tokenIssuers,
    ownOrigin: configuration.origin,
    nowMs: arrival.nowMs,
    waitUntil: arrival.waitUntil,
  });
  if (verified.ok) {
    tokens.remember(token.value, verified.value, arrival.nowMs);
    return verified.value;
  }
  if (verified.code !== 'unauthenticated') throw new Refusal(verified);
  throw new Refusal(
    verified,
    challenge(configuration, { scopes, error: 'invalid_token', description: verified.detail }),
  );
}

/** Refuses with every missing scope at once. */
export function requireScopes(
  principal: TenantPrincipal,
  scopes: readonly string[],
  configuration: Configuration,
): void {
  const missing = scopes.filter((scope) => !principal.scopes.has(scope));
  if (missing.length === 0) return;
  throw insufficientScope(`the token lacks ${missing.join(', ')}`, scopes, configuration);
}

/** A token that verifies and that its tenant's operator has barred. */
export function barred(detail: string, scopes: readonly string[], configuration: Configuration): Refusal {
  return new Refusal(
    failure('unauthenticated', detail),
    challenge(configuration, { scopes, error: 'invalid_token', description: detail }),
  );
}

export function insufficientScope(
  detail: string,
  scopes: readonly string[],
  configuration: Configuration,
): Refusal {
  return new Refusal(
    failure('insufficient_scope', detail),
    challenge(configuration, { scopes, error: 'insufficient_scope', description: detail }),
  );
}

/** One header, one scheme, one token (RFC 6750 section 2.1). */
function readBearer(authorization: string | null): Outcome<string> {
  if (authorization === null || authorization === '') {
    return failure('unauthenticated', 'an Authorization header with a Bearer token is needed');
  }
  // Fetch joins several headers of a name with a comma, which no bearer token contains.
  if (authorization.includes(',')) {
    return invalidHeader('exactly one Authorization header with exactly one token');
  }
  const [, scheme, token] = /^(\S*) ?(.*)$/.exec(authorization) ?? [];
  if (scheme?.toLowerCase() !== 'bearer') {
    return failure('unauthenticated', 'the Authorization scheme must be Bearer');
  }
  if (token === undefined || token === '') {
    return failure('unauthenticated', 'a token must follow "Bearer" and one space');
  }
  return success(token);
}

function invalidHeader(expected: string): Failure {
  return failure('invalid_request', 'the Authorization header is not usable', {
    violations: [{ path: 'header.Authorization', expected }],
  });
}

const verifiedTokens = new WeakMap<Configuration, VerifiedTokens>();

function verifiedTokensOf(configuration: Configuration): VerifiedTokens {
  const known = verifiedTokens.get(configuration);
  if (known !== undefined) return known;
  const tokens = new VerifiedTokens();
  verifiedTokens.set(configuration, tokens);
  return tokens;
}

async function isOperatorToken(token: string, configuration: Configuration): Promise<boolean> {
  const given = utf8(await sha256Hex(token));
  const wanted = utf8(configuration.operatorTokenSha256);
  return given.length === wanted.length && crypto.subtle.timingSafeEqual(given, wanted);
}

/** `WWW-Authenticate` by RFC 6750 section 3 with the metadata pointer of RFC 9728 section 5.1. */
export function challenge(
  configuration: Configuration,
  about: { scopes: readonly string[]; error?: string; description?: string },
): Record<string, string> {
  const parameters = [
    ...(about.error === undefined ? [] : [`error="${about.error}"`]),
    ...(about.description === undefined ? [] : [`error_description="${quotable(about.description)}"`]),
    `resource_metadata="${configuration.origin}${PROTECTED_RESOURCE_PATH}"`,
    ...(about.scopes.length === 0 ? [] : [`scope="${about.scopes.join(' ')}"`]),
  ];
  return { 'WWW-Authenticate': `Bearer ${parameters.join(', ')}` };
}

/** RFC 6750 allows no quotes, backslashes or bytes outside printable ASCII in a description. */
function quotable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]|["\\]/g, '?');
}
