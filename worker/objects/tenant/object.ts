/** The tenant object: request rate, index of sessions, and which create an idempotency key belongs to. */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';
import { configurationOf } from '../../configuration.ts';
import type { Env } from '../../env.ts';
import { MAX_TOKEN_LIFETIME_S } from '../../identity/access-token.ts';
import { formatListCursor, parseListCursor } from './list-cursor.ts';
import type {
  RequestLease,
  SessionList,
  SessionListEntry,
  Standing,
  TenantPort,
  TenantStatus,
} from './port.ts';
import { TenantStore } from './store.ts';
import { fullBucket, type TokenBucket, takeTokens } from './token-bucket.ts';

/** A repeated create is answered with the first session for this long. */
const CREATE_KEY_LIFETIME_MS = 86_400_000;
/** Each isolate that serves the tenant holds them. */
const MAX_REVOKED_TOKENS = 1_000;

export class TenantObject extends DurableObject<Env> implements TenantPort {
  readonly #store: TenantStore;
  /** In memory only: an object that had nothing to do long enough to be evicted has a full bucket anyway. */
  #bucket: TokenBucket | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new TenantStore(ctx.storage);
  }

  async leaseRequests(count: number, revision?: number): Promise<Outcome<RequestLease>> {
    const { tenantRequestsPerMinute: perMinute } = await configurationOf(this.env);
    const rate = { capacity: perMinute, perMinute };
    const nowMs = Date.now();
    const taken = takeTokens(this.#bucket ?? fullBucket(rate, nowMs), rate, { wanted: count, nowMs });
    this.#bucket = taken.bucket;
    return success({
      granted: taken.granted,
      limit: perMinute,
      remaining: taken.remaining,
      reset_s: Math.max(1, Math.ceil(taken.resetMs / 1000)),
      standing: this.#standing(revision),
    });
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

  async recordSession(input: { subject: string; entry: SessionListEntry }): Promise<void> {
    this.#store.putSession(input.subject, input.entry);
  }

  async forgetSession(sessionId: string): Promise<void> {
    this.#store.deleteSession(sessionId);
  }
}
