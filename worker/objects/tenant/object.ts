/** The tenant object: request rate, index of sessions, and which create an idempotency key belongs to. */
import { DurableObject } from 'cloudflare:workers';
import type * as z from 'zod';
import type { ApiKey, CreateApiKeySchema } from '../../../shared/api-key.ts';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { SessionState } from '../../../shared/lifecycle.ts';
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';
import type { Retention } from '../../../shared/retention.ts';
import type { LabelTerm } from '../../../shared/session.ts';
import type { TenantLimits, UsageReport } from '../../../shared/tenant.ts';
import type { WorkflowEntry, WorkflowList } from '../../../shared/workflow.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { MAX_TOKEN_LIFETIME_S } from '../../identity/access-token.ts';
import { termsNotices } from '../../terms/notice.ts';
import { ringBy } from '../ring-by.ts';
import type { Bars } from './bars/bars.ts';
import { BarStore } from './bars/store.ts';
import { ApiKeys, refused } from './keys/keys.ts';
import { ApiKeyStore } from './keys/store.ts';
import {
  type AccountTerms,
  type LimitTerms,
  reportAfterMs,
  type SessionAccount,
  type Wanted,
  type WebhookTerms,
} from './ledger/account.ts';
import { Holds, type StorageHold } from './ledger/holds/holds.ts';
import { HoldStore } from './ledger/holds/store.ts';
import { daysFault, Ledger } from './ledger/ledger.ts';
import { LedgerStore } from './ledger/store.ts';
import { formatListCursor, type ListPosition, parseListCursor } from './list-cursor.ts';
import { Listing } from './listing.ts';
import { News } from './news/news.ts';
import { NewsStore } from './news/store.ts';
import type {
  LeaseFor,
  ListWorkflows,
  RequestLease,
  ReservedCreate,
  SessionHold,
  SessionList,
  SessionListEntry,
  Standing,
  SubjectUsage,
  TenantPort,
  TenantStatus,
} from './port.ts';
import { Rates } from './rates.ts';
import { RetentionStore } from './retention/store.ts';
import { TenantStore } from './store.ts';
import { WebhookFlagStore } from './webhooks/store.ts';
import { WorkflowIndex } from './workflows/store.ts';

/** A repeated create is answered with the first session for this long. */
const CREATE_KEY_LIFETIME_MS = 86_400_000;
/** Each isolate that serves the tenant holds them. */
const MAX_BARS = 1_000;
const LONGEST_TOKEN_MS = (MAX_TOKEN_LIFETIME_S + MAX_CLOCK_SKEW_S) * 1_000;

export class TenantObject extends DurableObject<Env> implements TenantPort {
  readonly #store: TenantStore;
  readonly #rates = new Rates();
  readonly #ledger: Ledger;
  readonly #keys: ApiKeys;
  readonly #bars: BarStore;
  readonly #retention: RetentionStore;
  readonly #workflows: WorkflowIndex;
  readonly #webhooks: WebhookFlagStore;
  readonly #listing: Listing;
  readonly #news: News<LimitTerms & { sessionId: string }>;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new TenantStore(ctx.storage);
    this.#ledger = new Ledger(new LedgerStore(ctx.storage), new Holds(new HoldStore(ctx.storage)));
    this.#keys = new ApiKeys(new ApiKeyStore(ctx.storage));
    this.#bars = new BarStore(ctx.storage);
    this.#retention = new RetentionStore(ctx.storage);
    this.#workflows = new WorkflowIndex(ctx.storage);
    this.#webhooks = new WebhookFlagStore(ctx.storage);
    this.#listing = new Listing(ctx.storage, env);
    this.#news = new News(new NewsStore(ctx.storage), {
      sessionsAfter: (sessionId, limit) => this.#ledger.termsAfter(sessionId, limit),
      tell: (tenant, sessions) =>
        env.NOTICES.sendBatch(termsNotices({ tenant, terms: this.#commonTerms() }, sessions)),
    });
  }

  async leaseRequests(count: number, about: LeaseFor = {}): Promise<Outcome<RequestLease>> {
    const { tenantRequestsPerMinute } = await configurationOf(this.env);
    const { tenant, subject, revision, owner } = about;
    const telling = tenant === undefined ? undefined : this.#listing.tell(tenant);
    if (telling !== undefined) this.ctx.waitUntil(telling);
    const ofSubject = subject === undefined ? null : this.#ledger.limitsOf(subject).requests_per_minute;
    const taken = this.#rates.take(
      count,
      {
        tenant: this.#ledger.limits.tenant.requests_per_minute ?? tenantRequestsPerMinute,
        subject: subject === undefined || ofSubject === null ? null : { name: subject, perMinute: ofSubject },
      },
      Date.now(),
    );
    return success({
      granted: taken.granted,
      limit: taken.limit,
      by: taken.by,
      bySubject: this.#hasSubjectRates(),
      remaining: taken.remaining,
      reset_s: Math.max(1, Math.ceil(taken.resetMs / 1000)),
      standing: this.#standing(revision),
      endsRights: owner !== undefined && this.#bars.endsRights(owner, Date.now()),
    });
  }

  #hasSubjectRates(): boolean {
    const { subject, subjects } = this.#ledger.limits;
    return [subject, ...Object.values(subjects)].some((set) => set.requests_per_minute !== null);
  }

  async limits(): Promise<Outcome<TenantLimits>> {
    return success(this.#ledger.limits);
  }

  async setLimits(tenant: string, limits: TenantLimits): Promise<Outcome<null>> {
    this.#ledger.setLimits(limits);
    await this.#tell(tenant);
    return success(null);
  }

  /** The terms of sessions are others now. */
  async #tell(tenant: string): Promise<void> {
    const nowMs = Date.now();
    this.#store.changed();
    this.#news.changed(tenant, nowMs);
    await ringBy(this.ctx.storage, this.#news.dueAtMs ?? nowMs);
  }

  override async alarm(): Promise<void> {
    await this.#news.goOn(Date.now());
    const { dueAtMs } = this.#news;
    if (dueAtMs !== null) await ringBy(this.ctx.storage, dueAtMs);
  }

  async holdSession(hold: SessionHold): Promise<Outcome<null>> {
    return this.#ledger.hold(hold, Date.now());
  }

  async releaseSession(hold: Pick<SessionHold, 'sessionId' | 'holder'>): Promise<Outcome<null>> {
    this.#ledger.release(hold);
    return success(null);
  }

  async account(account: SessionAccount, wanted: Wanted | null): Promise<Outcome<AccountTerms>> {
    const terms = this.#ledger.account(account, wanted, Date.now());
    return terms.ok ? success(this.#termsWith(terms.value)) : terms;
  }

  #termsWith(terms: LimitTerms): AccountTerms {
    return { ...terms, ...this.#commonTerms() };
  }

  #commonTerms(): Omit<AccountTerms, keyof LimitTerms> {
    return {
      ...this.#webhooks.terms(),
      reportAfterMs: reportAfterMs(this.#ledger.sessionCount),
      revision: this.#store.standing().revision,
    };
  }

  async holdStorage(hold: StorageHold): Promise<Outcome<null>> {
    return this.#ledger.holdStorage(hold, Date.now());
  }

  async retention(): Promise<Outcome<Retention>> {
    return success(this.#retention.load());
  }

  async setRetention(retention: Retention): Promise<Outcome<null>> {
    this.#retention.save(retention);
    return success(null);
  }

  async usage(tenant: string, range: { from: string; to: string }): Promise<Outcome<UsageReport>> {
    return daysFault(range) ?? success(this.#ledger.report(tenant, range));
  }

  async subjectUsage(day: string, page: { after: string; limit: number }): Promise<Outcome<SubjectUsage[]>> {
    return success(this.#ledger.subjectsOf(day, page));
  }

  #standing(knownRevision: number | undefined): Standing {
    const { disabled, revision } = this.#store.standing();
    const isKnown = revision === knownRevision;
    return { disabled, revision, bars: isKnown ? null : this.#barsNow() };
  }

  async setDisabled(disabled: boolean): Promise<Outcome<null>> {
    this.#store.setDisabled(disabled);
    return success(null);
  }

  async revokeToken(tokenId: string): Promise<Outcome<null>> {
    const nowMs = Date.now();
    if (this.#store.revokedTokens(nowMs).length >= MAX_BARS) {
      return tooManyBars();
    }
    this.#store.revokeToken(tokenId, nowMs + LONGEST_TOKEN_MS);
    this.#bars.remember('token', tokenId, nowMs);
    return success(null);
  }

  async revokeSubject(subject: string): Promise<Outcome<null>> {
    const nowMs = Date.now();
    for (const keyId of this.#keys.liveOf(subject, nowMs)) this.#revokeKey(keyId, nowMs);
    if (this.#bars.live(nowMs).length >= MAX_BARS) return tooManyBars();
    this.#bars.put({ kind: 'subject', value: subject, until_at: nowMs }, nowMs + LONGEST_TOKEN_MS);
    this.#bars.remember('subject', subject, nowMs);
    this.#store.changed();
    return success(null);
  }

  async addApiKey(input: {
    keyId: string;
    sha256: string;
    key: z.output<typeof CreateApiKeySchema>;
  }): Promise<Outcome<ApiKey>> {
    return this.#keys.add(input, Date.now());
  }

  async apiKeys(): Promise<Outcome<ApiKey[]>> {
    return success(this.#keys.list());
  }

  async revokeApiKey(keyId: string): Promise<Outcome<boolean>> {
    return success(this.#revokeKey(keyId, Date.now()));
  }

  async useApiKey(key: { keyId: string; sha256: string }): Promise<Outcome<ApiKey>> {
    if (this.#store.standing().disabled) return refused();
    const lease = await this.leaseRequests(1);
    if (lease.ok && lease.value.granted === 0) {
      const { limit, reset_s } = lease.value;
      return failure('rate_limited', `the tenant may make ${limit} requests a minute`, {
        retry_after_s: reset_s,
      });
    }
    return this.#keys.use(key, Date.now());
  }

  #revokeKey(keyId: string, nowMs: number): boolean {
    if (!this.#keys.revoke(keyId, nowMs)) return false;
    this.#bars.put({ kind: 'api_key', value: keyId, until_at: nowMs }, nowMs + LONGEST_TOKEN_MS);
    this.#bars.remember('api_key', keyId, nowMs);
    this.#store.changed();
    return true;
  }

  #barsNow(): Bars {
    const nowMs = Date.now();
    const bars = this.#bars.live(nowMs);
    return {
      tokens: this.#store.revokedTokens(nowMs),
      apiKeys: bars.filter(({ kind }) => kind === 'api_key').map(({ value }) => value),
      subjects: bars
        .filter(({ kind }) => kind === 'subject')
        .map(({ value, until_at }) => ({ subject: value, untilMs: until_at })),
    };
  }

  async status(): Promise<Outcome<Omit<TenantStatus, 'tenant'>>> {
    const { disabled } = this.#store.standing();
    return success({ disabled, revoked_tokens: this.#store.revokedTokens(Date.now()).length });
  }

  async listSessions(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
    labels?: LabelTerm[];
    state?: SessionState | undefined;
  }): Promise<Outcome<SessionList>> {
    const position = positionIn(input.cursor);
    if (!position.ok) return position;
    const { subject, labels = [], state } = input;
    const found = this.#store.sessions({ subject, labels, state }, position.value, input.limit + 1);
    const sessions = found.slice(0, input.limit);
    const last = found.length > sessions.length ? sessions.at(-1) : undefined;
    return success({ sessions, next_cursor: last === undefined ? null : cursorAt(last, last.session_id) });
  }

  async recordWorkflow(subject: string, entry: WorkflowEntry): Promise<Outcome<null>> {
    this.#workflows.put(subject, entry);
    return success(null);
  }

  async forgetWorkflow(workflowId: string): Promise<Outcome<null>> {
    this.#workflows.delete(workflowId);
    return success(null);
  }

  async listWorkflows(input: ListWorkflows): Promise<Outcome<WorkflowList>> {
    const position = positionIn(input.cursor);
    if (!position.ok) return position;
    const found = this.#workflows.list(input, position.value, input.limit + 1);
    const workflows = found.slice(0, input.limit);
    const last = found.length > workflows.length ? workflows.at(-1) : undefined;
    return success({ workflows, next_cursor: last === undefined ? null : cursorAt(last, last.workflow_id) });
  }

  async reserveCreate(input: {
    key: string;
    fingerprint: string;
    id: string;
  }): Promise<Outcome<ReservedCreate>> {
    const nowMs = Date.now();
    this.#store.forgetReservationsBefore(nowMs - CREATE_KEY_LIFETIME_MS);
    const known = this.#store.reservation(input.key);
    if (known === undefined) {
      this.#store.reserve(input.key, { fingerprint: input.fingerprint, id: input.id }, nowMs);
      return success({ id: input.id, fresh: true, isMade: false, atMs: nowMs });
    }
    if (known.fingerprint !== input.fingerprint) {
      return failure('idempotency_conflict', 'the key was used to create something else');
    }
    return success({ id: known.id, fresh: false, isMade: known.isMade, atMs: known.atMs });
  }

  async settleCreate(input: { key: string; id: string; isMade: boolean }): Promise<Outcome<null>> {
    this.#store.settleReservation(input);
    return success(null);
  }

  async updateEntry(input: { subject: string; entry: SessionListEntry }): Promise<void> {
    this.#store.updateSession(input.subject, input.entry);
  }

  async recordSession(input: { subject: string; entry: SessionListEntry }): Promise<AccountTerms> {
    this.#store.putSession(input.subject, input.entry);
    const { session_id, state } = input.entry;
    if (state === 'error') this.#ledger.end(session_id, Date.now(), 'failed');
    else this.#ledger.begin(session_id, input.subject, Date.now());
    return this.#termsWith(this.#ledger.terms(input.subject));
  }

  async forgetSession(sessionId: string, account: SessionAccount | null): Promise<WebhookTerms> {
    this.#store.deleteSession(sessionId);
    if (account !== null) this.#ledger.account(account, null, Date.now());
    this.#ledger.end(sessionId, Date.now());
    return this.#webhooks.terms();
  }

  async setWebhooks(tenant: string, has: boolean): Promise<void> {
    if (this.#webhooks.set(has, Date.now())) await this.#tell(tenant);
  }
}

function positionIn(cursor: string | undefined): Outcome<ListPosition | undefined> {
  const position = cursor === undefined ? undefined : parseListCursor(cursor);
  if (cursor === undefined || position !== undefined) return success(position);
  return failure('invalid_request', 'the cursor is not one of this list', {
    violations: [{ path: 'query.cursor', expected: 'next_cursor of a former answer' }],
  });
}

function cursorAt({ created_at: createdAt }: { created_at: string }, id: string): string {
  return formatListCursor({ createdAt, id });
}

function tooManyBars(): Outcome<never> {
  return failure('quota_exceeded', `${MAX_BARS} of the tenant's tokens or subjects are revoked`);
}
