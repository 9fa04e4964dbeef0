/** The edge as an issuer of access tokens of its own: short ones, for API keys. Nobody else verifies them. */
import { SignJWT } from 'jose';
import type { ToolPolicy } from '../../shared/tool-policy.ts';
import { type SigningMaterial, signingMaterialOf } from './derived-key.ts';
import type { Issuer } from './issuer.ts';
import { InlineKeys } from './key-source.ts';

export interface OwnIssuer {
  issuer: Issuer;
  keyId: string;
  privateKey: CryptoKey;
}

export async function ownIssuerOf(origin: string, secret: Uint8Array<ArrayBuffer>): Promise<OwnIssuer> {
  const material: SigningMaterial = await signingMaterialOf(secret, 'access tokens');
  const { keyId, publicKey, privateKey } = material;
  const key = { keyId, algorithms: ['Ed25519'] as const, key: publicKey };
  return {
    keyId,
    privateKey,
    issuer: {
      issuer: origin,
      audience: origin,
      algorithms: new Set(['Ed25519'] as const),
      tenantClaim: 'tenant',
      toolPolicyClaim: 'tool_policy',
      tenants: null,
      keys: new InlineKeys(new Map([[keyId, key]])),
    },
  };
}

export interface TokenFacts {
  tenant: string;
  subject: string;
  apiKeyId: string;
  scope: string;
  toolPolicy: ToolPolicy | null;
  lifetimeS: number;
}

export async function issueAccessToken(
  { issuer, keyId, privateKey }: OwnIssuer,
  { tenant, subject, apiKeyId, scope, toolPolicy, lifetimeS }: TokenFacts,
  nowMs: number,
): Promise<string> {
  const held = toolPolicy === null ? {} : { tool_policy: toolPolicy };
  const issuedS = Math.floor(nowMs / 1_000);
  return new SignJWT({ tenant, scope, client_id: apiKeyId, ...held })
    .setProtectedHeader({ alg: 'Ed25519', typ: 'at+jwt', kid: keyId })
    .setIssuer(issuer.issuer)
    .setAudience(issuer.audience)
    .setSubject(subject)
    .setJti(crypto.randomUUID())
    .setIssuedAt(issuedS)
    .setExpirationTime(issuedS + lifetimeS)
    .sign(privateKey);
}
