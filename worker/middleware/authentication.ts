/** From the `Authorization` header to a principal that may use the route. Query and cookies are never read. */
import { sha256Hex } from '../../shared/digest.ts';
import { utf8 } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { Configuration } from '../configuration.ts';
import { verifyAccessToken } from '../identity/access-token.ts';
import { DPOP_ALGORITHMS, proofFault, type TakeProof } from '../identity/dpop-proof.ts';
import type { Principal, TenantPrincipal } from '../identity/principal.ts';
import { VerifiedTokens } from '../identity/verified-tokens.ts';
import { Refusal } from './refusal.ts';

export const PROTECTED_RESOURCE_PATH = '/.well-known/oauth-protected-resource';
const ACTOR_DIGITS = 8;

/** What a challenge names: this edge, or the part of it at a path that has metadata of its own (RFC 9728 section 3.1). */
export interface ProtectedResource {
  origin: string;
  resource?: string | undefined;
}

export function metadataPath(resource = ''): string {
  return `${PROTECTED_RESOURCE_PATH}${resource}`;
}

export interface Arrival {
  authorization: string | null;
  request: Request;
  configuration: Configuration;
  /** Which part of the edge is asked. */
  resource: string | undefined;
  nowMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
  /** Called once the token verifies, before a proof of its key is spent: what is refused here has cost nothing. */
  onVerified: (principal: TenantPrincipal) => void;
  /** For a proof that holds in all else; what it refuses has not spent it. */
  takeProof: (principal: TenantPrincipal, ...proof: Parameters<TakeProof>) => ReturnType<TakeProof>;
}

/** `scopes` are those that the route asks for: a caller without a token learns what to ask a token for. */
export async function authenticate(arrival: Arrival, scopes: readonly string[]): Promise<Principal> {
  const { configuration } = arrival;
  const asked = resourceOf(arrival);
  const given = readAuthorization(arrival.authorization);
  if (!given.ok && given.code === 'unauthenticated') {
    throw new Refusal(given, challenge(asked, { scopes }));
  }
  if (!given.ok) throw new Refusal(given);
  const { scheme, token } = given.value;
  // A JWS has dots, an operator's token has none.
  if (scheme === 'bearer' && !token.includes('.') && (await isOperatorToken(token, configuration))) {
    const { operatorTokenSha256 } = configuration;
    return { kind: 'operator', actor: `operator:${operatorTokenSha256.slice(0, ACTOR_DIGITS)}` };
  }
  const principal = await verified(token, arrival, scopes);
  if (principal.resource !== undefined && principal.resource !== arrival.resource) {
    throw barred(`the token is for ${principal.resource} alone`, scopes, asked);
  }
  arrival.onVerified(principal);
  await requirePossession(principal, { scheme, token, scopes }, arrival);
  return principal;
}

function resourceOf({ configuration: { origin }, resource }: Arrival): ProtectedResource {
  return { origin, resource };
}

/** Who sent this, where the token was verified a moment ago; a proof of its key is not looked at. */
export function rememberedCaller(
  authorization: string | null,
  configuration: Configuration,
  nowMs: number,
): TenantPrincipal | undefined {
  const given = readAuthorization(authorization);
  return given.ok ? verifiedTokensOf(configuration).find(given.value.token, nowMs) : undefined;
}

async function verified(
  token: string,
  arrival: Arrival,
  scopes: readonly string[],
): Promise<TenantPrincipal> {
  const { configuration, nowMs, waitUntil } = arrival;
  const tokens = verifiedTokensOf(configuration);
  const known = tokens.find(token, nowMs);
  if (known !== undefined) return known;
  const outcome = await verifyAccessToken(token, {
    issuers: configuration.tokenIssuers,
    ownOrigin: configuration.origin,
    nowMs,
    waitUntil,
  });
  if (outcome.ok) {
    tokens.remember(token, outcome.value, nowMs);
    return outcome.value;
  }
  if (outcome.code !== 'unauthenticated') throw new Refusal(outcome);
  throw new Refusal(
    outcome,
    challenge(resourceOf(arrival), { scopes, error: 'invalid_token', description: outcome.detail }),
  );
}

/** A bound token needs a proof of its key; one that is not bound proves nothing by coming with one. */
async function requirePossession(
  principal: TenantPrincipal,
  { scheme, token, scopes }: { scheme: Scheme; token: string; scopes: readonly string[] },
  arrival: Arrival,
): Promise<void> {
  const { request, configuration, nowMs, takeProof } = arrival;
  const { boundTo = null } = principal;
  if (scheme === 'bearer' && boundTo === null) return;
  const refuse = (why: Failure, error: string) =>
    new Refusal(
      why,
      challenge(resourceOf(arrival), { scheme: 'dpop', scopes, error, description: why.detail }),
    );
  if (scheme === 'bearer' || boundTo === null) {
    const detail =
      scheme === 'bearer'
        ? 'the token is bound to a key (cnf), and is no Bearer token'
        : 'the token is bound to no key';
    throw refuse(failure('unauthenticated', detail), 'invalid_token');
  }
  const fault = await proofFault(
    {
      proof: request.headers.get('DPoP'),
      token,
      boundTo,
      method: request.method,
      url: `${configuration.origin}${new URL(request.url).pathname}`,
      nowMs,
    },
    (proof) => takeProof(principal, proof),
  );
  if (fault === undefined) return;
  throw fault.code === 'unauthenticated' ? refuse(fault, 'invalid_dpop_proof') : new Refusal(fault);
}

/** Refuses with every missing scope at once. */
export function requireScopes(
  principal: TenantPrincipal,
  scopes: readonly string[],
  resource: ProtectedResource,
): void {
  const missing = scopes.filter((scope) => !principal.scopes.has(scope));
  if (missing.length === 0) return;
  throw insufficientScope(`the token lacks ${missing.join(', ')}`, scopes, resource);
}

/** A token that verifies and that its tenant's operator has barred. */
export function barred(detail: string, scopes: readonly string[], resource: ProtectedResource): Refusal {
  return new Refusal(
    failure('unauthenticated', detail),
    challenge(resource, { scopes, error: 'invalid_token', description: detail }),
  );
}

export function insufficientScope(
  detail: string,
  scopes: readonly string[],
  resource: ProtectedResource,
): Refusal {
  return new Refusal(
    failure('insufficient_scope', detail),
    challenge(resource, { scopes, error: 'insufficient_scope', description: detail }),
  );
}

type Scheme = 'bearer' | 'dpop';

/** One header, one scheme, one token (RFC 6750 section 2.1, RFC 9449 section 7.1). */
function readAuthorization(authorization: string | null): Outcome<{ scheme: Scheme; token: string }> {
  if (authorization === null || authorization === '') {
    return failure('unauthenticated', 'an Authorization header with a Bearer token is needed');
  }
  // Fetch joins several headers of a name with a comma, which no token contains.
  if (authorization.includes(',')) {
    return invalidHeader('exactly one Authorization header with exactly one token');
  }
  const [, named = '', token] = /^(\S*) ?(.*)$/.exec(authorization) ?? [];
  const scheme = named.toLowerCase();
  if (scheme !== 'bearer' && scheme !== 'dpop') {
    return failure('unauthenticated', 'the Authorization scheme must be Bearer or DPoP');
  }
  if (token === undefined || token === '') {
    return failure('unauthenticated', `a token must follow "${named}" and one space`);
  }
  return success({ scheme, token });
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
  { origin, resource }: ProtectedResource,
  about: { scheme?: Scheme; scopes: readonly string[]; error?: string; description?: string },
): Record<string, string> {
  const parameters = [
    ...(about.error === undefined ? [] : [`error="${about.error}"`]),
    ...(about.description === undefined ? [] : [`error_description="${quotable(about.description)}"`]),
    `resource_metadata="${origin}${metadataPath(resource)}"`,
    ...(about.scopes.length === 0 ? [] : [`scope="${about.scopes.join(' ')}"`]),
  ];
  if (about.scheme !== 'dpop') return { 'WWW-Authenticate': `Bearer ${parameters.join(', ')}` };
  return { 'WWW-Authenticate': `DPoP ${[...parameters, `algs="${DPOP_ALGORITHMS.join(' ')}"`].join(', ')}` };
}

/** RFC 6750 allows no quotes, backslashes or bytes outside printable ASCII in a description. */
function quotable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]|["\\]/g, '?');
}
