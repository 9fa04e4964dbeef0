/** The Worker's text bindings for a development edge. */
import { publicPart } from '../../shared/ed25519.ts';
import { DEVELOPMENT_ISSUER, TENANT_CLAIM } from './access-token.ts';
import { type DevelopmentKeys, sha256HexOf } from './keys.ts';

const REQUESTS_PER_MINUTE = '6000';

export type Bindings = Record<string, string>;

export function developmentBindings(keys: DevelopmentKeys, overrides: Bindings = {}): Bindings {
  const issuer = {
    issuer: DEVELOPMENT_ISSUER,
    audience: keys.edge_origin,
    jwks: { keys: [{ ...publicPart(keys.issuer_key), alg: 'Ed25519', use: 'sig' }] },
    algorithms: ['Ed25519'],
    tenant_claim: TENANT_CLAIM,
  };
  return {
    EDGE_ORIGIN: keys.edge_origin,
    ISSUERS: JSON.stringify([issuer]),
    EDGE_ROOT_KEY: JSON.stringify(keys.root_key),
    GRANT_KEY: JSON.stringify(keys.grant_key),
    RECEIPT_KEY: JSON.stringify(keys.receipt_key),
    KEY_SET_VERSION: '1',
    ID_SECRET: keys.id_secret,
    OPERATOR_TOKEN_SHA256: sha256HexOf(keys.operator_token),
    POOLS: JSON.stringify(['default']),
    TENANT_REQUESTS_PER_MINUTE: REQUESTS_PER_MINUTE,
    WORKFLOWS_NEED_TAKING_UP: 'true',
    ...overrides,
  };
}
