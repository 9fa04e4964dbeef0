/** What others may ask of a tenant object. */
import type * as z from 'zod';
import type { Outcome } from '../../../shared/errors.ts';
import type { SessionListSchema } from '../../../shared/session.ts';

export type SessionList = z.infer<typeof SessionListSchema>;
export type SessionListEntry = SessionList['sessions'][number];

export interface RequestLease {
  granted: number;
  limit: number;
  /** Left after this lease. */
  remaining: number;
  /** Whole seconds until more is granted. */
  reset_s: number;
  standing: Standing;
}

/** Who of the tenant may call at all, as its operator has said. */
export interface Standing {
  disabled: boolean;
  /** Changes with each revocation. */
  revision: number;
  /** `jti` of tokens that were revoked and may still live; null where the asker knows this revision. */
  revokedTokens: string[] | null;
}

export interface TenantStatus {
  tenant: string;
  disabled: boolean;
  revoked_tokens: number;
}

export interface TenantPort {
  /** Takes up to `count` requests out of the tenant's rate. `revision` is that of the standing which the asker knows. */
  leaseRequests(count: number, revision?: number): Promise<Outcome<RequestLease>>;
  /** From the next lease on: within a minute wherever the tenant calls. */
  setDisabled(disabled: boolean): Promise<Outcome<null>>;
  revokeToken(tokenId: string): Promise<Outcome<null>>;
  status(): Promise<Outcome<Omit<TenantStatus, 'tenant'>>>;
  listSessions(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
  }): Promise<Outcome<SessionList>>;
  /** The session id that the first request with this key got; `fresh` for that first one. */
  reserveCreate(input: {
    key: string;
    fingerprint: string;
    sessionId: string;
  }): Promise<Outcome<{ sessionId: string; fresh: boolean }>>;
  recordSession(input: { subject: string; entry: SessionListEntry }): Promise<void>;
  forgetSession(sessionId: string): Promise<void>;
}
