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
}

export interface TenantPort {
  /** Takes up to `count` requests out of the tenant's rate. */
  leaseRequests(count: number): Promise<Outcome<RequestLease>>;
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
