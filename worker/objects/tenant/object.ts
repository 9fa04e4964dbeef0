/** The tenant object: request rate, index of sessions, and which create an idempotency key belongs to. */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';
import type { TenantLimits, UsageReport } from '../../../shared/tenant.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { MAX_TOKEN_LIFETIME_S } from '../../identity/access-token.ts';
import type { AccountTerms, SessionAccount, WantedExecution } from './ledger/account.ts';
import { daysFault, Ledger } from './ledger/ledger.ts';
import { LedgerStore } from './ledger/store.ts';
import { formatListCursor, parseListCursor } from './list-cursor.ts';
import type {
  LeaseFor,
  RequestLease,
  SessionHold,
  SessionList,
  SessionListEntry,
  Standing,
  SubjectUsage,
  TenantPort,
  TenantStatus,
} from './port.ts';
import { Rates } from './rates.ts';
import { TenantStore } from './store.ts';

/** A repeated create is answered with the first session for this long. */
const CREATE_KEY_LIFETIME_MS = 86_400_000;
/** Each isolate that serves the tenant holds them. */
const MAX_REVOKED_TOKENS = 1_000;

export class TenantObject extends DurableObject<Env> implements TenantPort {
  readonly #store: TenantStore;
  readonly #rates = new Rates();
  readonly #ledger: Ledger;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new TenantStore(ctx.storage);
    this.#ledger = new Ledger(new LedgerStore(ctx.storage));
  }

  async leaseRequests(count: number, about: LeaseFor = {}): Promise<Outcome<RequestLease>> {
    const { tenantRequestsPerMinute } = await configurationOf(this.env);
    const { subject, revision } = about;
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
    });
  }

  #hasSubjectRates(): boolean {
    const { subject, subjects } = this.#ledger.limits;
    return [subject, ...Object.values(subjects)].some((set) => set.requests_per_minute !== null);
  }

  async limits(): Promise<Outcome<TenantLimits>> {
    return success(this.#ledger.limits);
  }

  async setLimits(limits: TenantLimits): Promise<Outcome<null>> {
    this.#ledger.setLimits(limits);
    return success(null);
  }

  async holdSession(hold: SessionHold): Promise<Outcome<null>> {
    return this.#ledger.hold(hold, Date.now());
  }

  async releaseSession(hold: Pick<SessionHold, 'sessionId' | 'holder'>): Promise<Outcome<null>> {
    this.#ledger.release(hold);
    return success(null);
  }

  async account(account: SessionAccount, wanted: WantedExecution | null): Promise<Outcome<AccountTerms>> {
    return this.#ledger.account(account, wanted, Date.now());
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
    return { disabled, revision, revokedTokens: isKnown ? null : this.#store.revokedTokens(Date.now()) };
  }

  async setDisabled(disabled: boolean): Promise<Outcome<null>> {
    this.#store.setDisabled(disabled);
    return success(null);
  }

  async revokeToken(tokenId: string): Promise<Outcome<null>> {
    const nowMs = Date.now();
    if (this.#store.revokedTokens(nowMs).length >= MAX_REVOKED_TOKENS) {
      return failure('quota_exceeded', `${MAX_REVOKED_TOKENS} live tokens of the tenant are revoked`);
    }
    this.#store.revokeToken(tokenId, nowMs + (MAX_TOKEN_LIFETIME_S + MAX_CLOCK_SKEW_S) * 1_000);
    return success(null);
  }

  async status(): Promise<Outcome<Omit<TenantStatus, 'tenant'>>> {
    const { disabled } = this.#store.standing();
    return success({ disabled, revoked_tokens: this.#store.revokedTokens(Date.now()).length });
  }

  async listSessions(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
  }): Promise<Outcome<SessionList>> {
    const position = input.cursor === undefined ? undefined : parseListCursor(input.cursor);
    if (input.cursor !== undefined && position === undefined) {
      return failure('invalid_request', 'the cursor is not one of this list', {
        violations: [{ path: 'query.cursor', expected: 'next_cursor of a former answer' }],
      });
    }
    const found = this.#store.sessions(input.subject, position, input.limit + 1);
    const sessions = found.slice(0, input.limit);
    const last = sessions.at(-1);
    const next =
      found.length > sessions.length && last !== undefined
        ? formatListCursor({ createdAt: last.created_at, sessionId: last.session_id })
        : null;
    return success({ sessions, next_cursor: next });
  }

  async reserveCreate(input: {
    key: string;
    fingerprint: string;
    sessionId: string;
  }): Promise<Outcome<{ sessionId: string; fresh: boolean }>> {
    const nowMs = Date.now();
    this.#store.forgetReservationsBefore(nowMs - CREATE_KEY_LIFETIME_MS);
    const known = this.#store.reservation(input.key);
    if (known === undefined) {
      this.#store.reserve(input.key, { fingerprint: input.fingerprint, session_id: input.sessionId }, nowMs);
      return success({ sessionId: input.sessionId, fresh: true });
    }
    if (known.fingerprint !== input.fingerprint) {
      return failure('idempotency_conflict', 'the key was used to create another session');
    }
    return success({ sessionId: known.session_id, fresh: false });
  }

  async recordSession(input: { subject: string; entry: SessionListEntry }): Promise<AccountTerms> {
    this.#store.putSession(input.subject, input.entry);
    const { session_id, state } = input.entry;
    if (state === 'error') this.#ledger.end(session_id, Date.now(), 'failed');
    else this.#ledger.begin(session_id, input.subject, Date.now());
    return this.#ledger.terms(input.subject);
  }

  async forgetSession(sessionId: string, account: SessionAccount | null): Promise<void> {
    this.#store.deleteSession(sessionId);
    if (account !== null) this.#ledger.account(account, null, Date.now());
    this.#ledger.end(sessionId, Date.now());
  }
}
