/** What others may ask of a tenant object. */
import type * as z from 'zod';
import type { ApiKey, CreateApiKeySchema } from '../../../shared/api-key.ts';
import type { Outcome } from '../../../shared/errors.ts';
import type { SessionState } from '../../../shared/lifecycle.ts';
import type { Retention } from '../../../shared/retention.ts';
import type { LabelTerm, SessionListSchema } from '../../../shared/session.ts';
import type { TenantLimits, Usage, UsageReport } from '../../../shared/tenant.ts';
import type { WorkflowEntry, WorkflowList, WorkflowStatus } from '../../../shared/workflow.ts';
import type { BarredCaller, Bars } from './bars/bars.ts';
import type { AccountTerms, SessionAccount, Wanted, WebhookTerms } from './ledger/account.ts';
import type { StorageHold } from './ledger/holds/holds.ts';

export type SessionList = z.infer<typeof SessionListSchema>;
export type SessionListEntry = SessionList['sessions'][number];

export interface RequestLease {
  granted: number;
  limit: number;
  /** Whose rate the numbers are of. */
  by: 'tenant' | 'subject';
  /** Whether subjects have rates of their own: then each of them needs leases of its own. */
  bySubject: boolean;
  /** Left after this lease. */
  remaining: number;
  /** Whole seconds until more is granted. */
  reset_s: number;
  standing: Standing;
  /** The rights that were asked for are taken back. */
  endsRights: boolean;
}

/** Who of the tenant may call at all, as its operator has said. */
export interface Standing {
  disabled: boolean;
  /** Changes with each revocation. */
  revision: number;
  /** Null where the asker knows this revision. */
  bars: Bars | null;
}

export interface TenantStatus {
  tenant: string;
  disabled: boolean;
  revoked_tokens: number;
}

export interface LeaseFor {
  tenant?: string;
  subject?: string;
  /** Of the standing that the asker knows. */
  revision?: number | undefined;
  /** Whose rights outlive their token: whether they were taken back, however long ago. */
  owner?: BarredCaller;
}

export interface SessionHold {
  sessionId: string;
  subject: string;
  /** The request that asks. */
  holder: string;
}

export type SubjectUsage = Usage & { subject: string };

export interface ListWorkflows {
  subject: string;
  cursor?: string | undefined;
  limit: number;
  /** All of them have to hold. */
  labels: LabelTerm[];
  status: WorkflowStatus | undefined;
}

export interface ReservedCreate {
  id: string;
  fresh: boolean;
  /** What the first request made was there: where it is not, it was removed since. */
  isMade: boolean;
  atMs: number;
}

export interface TenantPort {
  /** Takes up to `count` requests out of the rate of the tenant, and of its subject where that has one. */
  leaseRequests(count: number, about?: LeaseFor): Promise<Outcome<RequestLease>>;
  limits(): Promise<Outcome<TenantLimits>>;
  /** Hold for what begins from now on; sessions that are at work are told. */
  setLimits(tenant: string, limits: TenantLimits): Promise<Outcome<null>>;
  /** Reserves a place for a session that is going to be created. */
  holdSession(hold: SessionHold): Promise<Outcome<null>>;
  /** No session comes of it. */
  releaseSession(hold: Pick<SessionHold, 'sessionId' | 'holder'>): Promise<Outcome<null>>;
  /** Takes in how a session stands; with `wanted`, reserves that too or says what it would pass. */
  account(account: SessionAccount, wanted: Wanted | null): Promise<Outcome<AccountTerms>>;
  /** Takes in what something stored takes; refused where more of it would pass a limit. */
  holdStorage(hold: StorageHold): Promise<Outcome<null>>;
  /** How long what is over is kept: asked by what keeps it, about once a day. */
  retention(): Promise<Outcome<Retention>>;
  setRetention(retention: Retention): Promise<Outcome<null>>;
  /** Both days are within. */
  usage(tenant: string, range: { from: string; to: string }): Promise<Outcome<UsageReport>>;
  subjectUsage(day: string, page: { after: string; limit: number }): Promise<Outcome<SubjectUsage[]>>;
  /** From the next lease on: within a minute wherever the tenant calls. */
  setDisabled(disabled: boolean): Promise<Outcome<null>>;
  revokeToken(tokenId: string): Promise<Outcome<null>>;
  /** Every token and API key that the subject has now. */
  revokeSubject(subject: string): Promise<Outcome<null>>;
  addApiKey(input: {
    keyId: string;
    sha256: string;
    key: z.output<typeof CreateApiKeySchema>;
  }): Promise<Outcome<ApiKey>>;
  apiKeys(): Promise<Outcome<ApiKey[]>>;
  /** False where there is no such key. */
  revokeApiKey(keyId: string): Promise<Outcome<boolean>>;
  /** The key, where it may be exchanged; an exchange counts as a request. */
  useApiKey(key: { keyId: string; sha256: string }): Promise<Outcome<ApiKey>>;
  status(): Promise<Outcome<Omit<TenantStatus, 'tenant'>>>;
  listSessions(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
    /** All of them have to hold. */
    labels?: LabelTerm[];
    state?: SessionState | undefined;
  }): Promise<Outcome<SessionList>>;
  /** A workflow as it stands now; the same again changes nothing. */
  recordWorkflow(subject: string, entry: WorkflowEntry): Promise<Outcome<null>>;
  /** Its record is gone. */
  forgetWorkflow(workflowId: string): Promise<Outcome<null>>;
  listWorkflows(input: ListWorkflows): Promise<Outcome<WorkflowList>>;
  /** Of a session that is in the index: what it is found by has changed. */
  updateEntry(input: { subject: string; entry: SessionListEntry }): Promise<void>;
  /** The id of what the first request with this key made, a session or another thing; `fresh` for that first one. */
  reserveCreate(input: { key: string; fingerprint: string; id: string }): Promise<Outcome<ReservedCreate>>;
  /** It is made; or nothing came of it, and the key makes something anew. */
  settleCreate(input: { key: string; id: string; isMade: boolean }): Promise<Outcome<null>>;
  /** What the session has to do about its use is the answer. */
  recordSession(input: { subject: string; entry: SessionListEntry }): Promise<AccountTerms>;
  /** `account` is how the session stood at its end. */
  forgetSession(sessionId: string, account: SessionAccount | null): Promise<WebhookTerms>;
  /** Whether the tenant has webhooks: sessions that are at work are told. */
  setWebhooks(tenant: string, has: boolean): Promise<void>;
}
