/** Access tokens for development and tests, as an identity provider would issue them (RFC 9068). */
import { SignJWT } from 'jose';
import { importPrivateKey } from '../../shared/ed25519.ts';
import { randomHandle } from '../../shared/ids.ts';
import { SCOPES } from '../../shared/scopes.ts';
import type { DevelopmentKeys } from './keys.ts';

export const DEVELOPMENT_ISSUER = 'urn:sandgate:development';
export const TENANT_CLAIM = 'tenant';
const LIFETIME_S = 24 * 60 * 60;

export type TokenOverrides = {
  /** Replace or add claims; a claim set to undefined is left out. */
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
};

export async function mintAccessToken(
  keys: DevelopmentKeys,
  overrides: TokenOverrides = {},
): Promise<string> {
  const issuedAtS = Math.floor(Date.now() / 1000);
  const claims = {
    iss: DEVELOPMENT_ISSUER,
    sub: 'developer',
    aud: keys.edge_origin,
    iat: issuedAtS,
    exp: issuedAtS + LIFETIME_S,
    jti: randomHandle(),
    client_id: 'development',
    scope: Object.keys(SCOPES).join(' '),
    [TENANT_CLAIM]: 'development',
    ...overrides.claims,
  };
  const present = Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== undefined));
  return new SignJWT(present)
    .setProtectedHeader({ alg: 'Ed25519', typ: 'at+jwt', kid: keys.issuer_key.kid, ...overrides.header })
    .sign(await importPrivateKey(keys.issuer_key));
}
