/** Who makes a request, as a verified token says. */
import type { ToolPolicy } from '../../shared/tool-policy.ts';

export interface TenantPrincipal {
  kind: 'tenant';
  tenant: string;
  subject: string;
  /** OAuth client that the token was issued to. */
  client: string;
  scopes: ReadonlySet<string>;
  /** To what its calls of tools are held beside the scopes; null where to nothing. */
  toolPolicy: ToolPolicy | null;
  /** `jti` of the token. */
  tokenId: string;
  /** Thumbprint of the key without whose proof the token is worth nothing. */
  boundTo?: string | null;
  /** The part of this edge that the token is for alone; all of it without. */
  resource?: string;
  /** `iat` of the token. */
  issuedAtMs: number;
  /** The API key that this edge gave the token for. */
  apiKeyId: string | null;
  /** `exp` of the token. */
  expiresAtMs: number;
}

/** The operator of this edge: enrols hosts, and has no tenant. */
export interface OperatorPrincipal {
  kind: 'operator';
  /** Who, for the log: `operator:` and the first digits of the token's digest. */
  actor: string;
}

export type Principal = TenantPrincipal | OperatorPrincipal;
