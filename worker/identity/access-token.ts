/** Access tokens by the profile of RFC 9068: verified against the configured issuers, giving the principal. */
import { errors, jwtVerify } from 'jose';
import * as z from 'zod';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { TenantSchema } from '../../shared/ids.ts';
import { MAX_CLOCK_SKEW_S } from '../../shared/limits.ts';
import type { Scope } from '../../shared/scopes.ts';
import { SubjectSchema } from '../../shared/tenant.ts';
import { type ToolPolicy, ToolPolicySchema } from '../../shared/tool-policy.ts';
import { decodeToken } from './compact-token.ts';
import type { Issuer } from './issuer.ts';
import type { TenantPrincipal } from './principal.ts';
import type { VerificationKey } from './verification-key.ts';

export const MAX_TOKEN_LIFETIME_S = 86_400;
/** The part of the edge that has metadata, and so an audience, of its own. */
export const MCP_RESOURCE = '/mcp';
const REGISTERS_TOOLS: Scope = 'tools:write';
const REQUIRED_CLAIMS = ['iss', 'sub', 'aud', 'exp', 'iat', 'jti', 'client_id'];

export interface TokenPolicy {
  issuers: ReadonlyMap<string, Issuer>;
  /** The issuer whose tokens are of API keys. */
  ownOrigin: string;
  nowMs: number;
  waitUntil: (promise: Promise<unknown>) => void;
}

export async function verifyAccessToken(
  token: string,
  policy: TokenPolicy,
): Promise<Outcome<TenantPrincipal>> {
  const decoded = decodeToken(token);
  if (!decoded.ok) return decoded;
  const { header, claims } = decoded.value;
  const issuer = typeof claims.iss === 'string' ? policy.issuers.get(claims.iss) : undefined;
  if (issuer === undefined) return refuse('iss is not an issuer of this edge');
  if (!issuer.algorithms.has(header.alg)) return refuse('alg is not one of the issuer');
  const lookup = await issuer.keys.keyFor(header.kid, policy.waitUntil);
  if (lookup.found === 'unavailable') {
    return failure('issuer_unavailable', 'the keys of the issuer could not be fetched', {
      retry_after_s: 5,
    });
  }
  if (lookup.found === 'unknown') return refuse('kid is not a key of the issuer');
  if (!lookup.key.algorithms.includes(header.alg)) return refuse('alg is not the one of the key');
  const forged = await verifySignatureAndTimes(token, lookup.key, issuer, policy.nowMs);
  return forged ?? principalOf(claims, issuer, issuer.issuer === policy.ownOrigin);
}

async function verifySignatureAndTimes(
  token: string,
  key: VerificationKey,
  issuer: Issuer,
  nowMs: number,
): Promise<Failure | undefined> {
  try {
    await jwtVerify(token, key.key, {
      algorithms: [...key.algorithms],
      issuer: issuer.issuer,
      audience: [issuer.audience, partOf(issuer, MCP_RESOURCE)],
      typ: 'at+jwt',
      requiredClaims: REQUIRED_CLAIMS,
      clockTolerance: MAX_CLOCK_SKEW_S,
      // Also what makes jose refuse an iat in the future.
      maxTokenAge: MAX_TOKEN_LIFETIME_S,
      currentDate: new Date(nowMs),
    });
    return undefined;
  } catch (error: unknown) {
    if (error instanceof errors.JWTExpired) return refuse('the token is expired');
    if (error instanceof errors.JWTClaimValidationFailed) {
      return refuse(`the claim ${error.claim} is missing or does not hold`);
    }
    if (error instanceof errors.JOSEError) return refuse('the signature does not verify');
    throw error;
  }
}

const ClaimsSchema = z.object({
  iat: z.number(),
  exp: z.number(),
  /** RFC 9068 allows several; a token for several services is one that each of them could replay at the others. */
  aud: z.string(),
  sub: SubjectSchema,
  client_id: SubjectSchema,
  jti: SubjectSchema,
  scope: z.string().max(2_048).default(''),
});

/** By a key of DPoP (RFC 9449 section 6), or not at all. */
const BindingSchema = z.strictObject({ jkt: z.string().regex(/^[A-Za-z0-9_-]{43}$/) }).optional();

function principalOf(
  input: Record<string, unknown>,
  issuer: Issuer,
  isOwn: boolean,
): Outcome<TenantPrincipal> {
  const claims = ClaimsSchema.safeParse(input);
  if (!claims.success) {
    return refuse(`the claim ${String(claims.error.issues[0]?.path[0])} does not have its form`);
  }
  const { iat, exp, aud, sub, client_id, scope, jti } = claims.data;
  const binding = BindingSchema.safeParse(input.cnf);
  if (!binding.success) return refuse('the token is bound to a key (cnf) in a way that is not known here');
  if (exp - iat > MAX_TOKEN_LIFETIME_S) {
    return refuse(`the token must live for at most ${MAX_TOKEN_LIFETIME_S} s`);
  }
  const tenant = TenantSchema.safeParse(
    Object.hasOwn(input, issuer.tenantClaim) ? input[issuer.tenantClaim] : undefined,
  );
  if (!tenant.success) return refuse(`the claim ${issuer.tenantClaim} is not the name of a tenant`);
  if (issuer.tenants !== null && !issuer.tenants.has(tenant.data)) {
    return refuse(`the claim ${issuer.tenantClaim} is not a tenant of the issuer`);
  }
  const toolPolicy = toolPolicyIn(input, issuer);
  if (toolPolicy === undefined) return refuse(`the claim ${issuer.toolPolicyClaim} is not a tool policy`);
  return success({
    kind: 'tenant',
    tenant: tenant.data,
    subject: sub,
    client: client_id,
    scopes: scopesOf(scope, toolPolicy),
    toolPolicy,
    tokenId: jti,
    boundTo: binding.data?.jkt ?? null,
    ...(aud === partOf(issuer, MCP_RESOURCE) ? { resource: MCP_RESOURCE } : {}),
    issuedAtMs: iat * 1_000,
    apiKeyId: isOwn ? client_id : null,
    expiresAtMs: exp * 1_000,
  });
}

/** Clients ask for tokens for the resource whose metadata they have read (RFC 8707). */
function partOf({ audience }: Issuer, path: string): string {
  return `${audience.replace(/\/$/, '')}${path}`;
}

/** Undefined for one that cannot be read: what it forbids is not known. */
function toolPolicyIn(
  input: Record<string, unknown>,
  { toolPolicyClaim: claim }: Issuer,
): ToolPolicy | null | undefined {
  if (!Object.hasOwn(input, claim)) return null;
  return ToolPolicySchema.safeParse(input[claim]).data;
}

/** Who is held to a policy registers no tools: a tool of their own would do for them what the policy forbids. */
function scopesOf(scope: string, toolPolicy: ToolPolicy | null): Set<string> {
  const scopes = new Set(scope.split(' ').filter((name) => name !== ''));
  if (toolPolicy !== null) scopes.delete(REGISTERS_TOOLS);
  return scopes;
}

function refuse(detail: string): Failure {
  return failure('unauthenticated', detail);
}
