/** Issuers of access tokens, as configuration names them: what each may sign, for whom, and with which keys. */
import * as z from 'zod';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { TenantSchema } from '../../shared/ids.ts';
import { InlineKeys, type KeySource } from './key-source.ts';
import { RemoteKeys } from './remote-keys.ts';
import {
  importVerificationKey,
  TOKEN_ALGORITHMS,
  type TokenAlgorithm,
  type VerificationKey,
} from './verification-key.ts';

const CLAIM_NAME = /^[A-Za-z0-9_:/.-]{1,128}$/;

const IssuerSchema = z
  .strictObject({
    issuer: z.string().min(1).max(512),
    audience: z.string().min(1).max(512),
    jwks: z.object({ keys: z.array(z.unknown()).min(1).max(32) }).optional(),
    jwks_url: z.string().max(2048).optional(),
    algorithms: z.array(z.enum(TOKEN_ALGORITHMS)).min(1),
    tenant_claim: z.string().regex(CLAIM_NAME).default('tenant'),
    /** Of the claim that holds a tool policy; a token without it is held to its scopes alone. */
    tool_policy_claim: z.string().regex(CLAIM_NAME).default('tool_policy'),
    /** The tenants that this issuer may speak for; without it, any. */
    tenants: z.array(TenantSchema).min(1).optional(),
  })
  .refine((entry) => (entry.jwks === undefined) !== (entry.jwks_url === undefined), {
    message: 'exactly one of jwks and jwks_url',
  });
export const IssuersSchema = z.array(IssuerSchema).max(16);
export type IssuerEntry = z.infer<typeof IssuerSchema>;

export interface Issuer {
  issuer: string;
  audience: string;
  algorithms: ReadonlySet<TokenAlgorithm>;
  tenantClaim: string;
  toolPolicyClaim: string;
  tenants: ReadonlySet<string> | null;
  keys: KeySource;
}

/** `plainHttp` lets keys come from a loopback address without TLS: development only. */
export async function issuerOf(entry: IssuerEntry, allow: { plainHttp: boolean }): Promise<Outcome<Issuer>> {
  const algorithms = new Set(entry.algorithms);
  const keys = await keySourceOf(entry, algorithms, allow.plainHttp);
  if (!keys.ok) return keys;
  return success({
    issuer: entry.issuer,
    audience: entry.audience,
    algorithms,
    tenantClaim: entry.tenant_claim,
    toolPolicyClaim: entry.tool_policy_claim,
    tenants: entry.tenants === undefined ? null : new Set(entry.tenants),
    keys: keys.value,
  });
}

async function keySourceOf(
  entry: IssuerEntry,
  algorithms: ReadonlySet<TokenAlgorithm>,
  plainHttp: boolean,
): Promise<Outcome<KeySource>> {
  if (entry.jwks_url !== undefined) {
    const url = URL.canParse(entry.jwks_url) ? new URL(entry.jwks_url) : undefined;
    const usable = url?.protocol === 'https:' || (url !== undefined && plainHttp && isLoopbackHttp(url));
    if (url === undefined || !usable || url.username !== '' || url.password !== '') {
      return failure('invalid_request', 'jwks_url must be an https URL without credentials');
    }
    return success(new RemoteKeys(url, (jwk) => importVerificationKey(jwk, algorithms)));
  }
  const keys = new Map<string, VerificationKey>();
  for (const jwk of entry.jwks?.keys ?? []) {
    const key = await importVerificationKey(jwk, algorithms);
    if (key === undefined) return failure('invalid_request', 'jwks holds a key that is not usable');
    if (keys.has(key.keyId)) return failure('invalid_request', `jwks names the key ${key.keyId} twice`);
    keys.set(key.keyId, key);
  }
  return success(new InlineKeys(keys));
}

export function isLoopbackHttp(url: URL): boolean {
  return url.protocol === 'http:' && ['127.0.0.1', '[::1]', 'localhost'].includes(url.hostname);
}
