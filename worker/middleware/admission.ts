/**
 * The request rate of a tenant. The tenant's object gives out leases of a block of requests; an isolate spends them
 * without asking again, so the object sees a small part of the requests.
 */
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';
import type { RequestLease } from '../objects/tenant/port.ts';
import { Refusal } from './refusal.ts';

export interface RateState {
  limit: number;
  remaining: number;
  resetMs: number;
}

interface Entry extends RateState {
  /** Requests leased and not yet spent here. */
  leased: number;
  /** Whether a request is asking for a block now: others then ask for one request only, not for a block each. */
  isLeasing: boolean;
  disabled: boolean;
  revision: number | undefined;
  revokedTokens: ReadonlySet<string>;
}

export type Lease = (count: number, revision: number | undefined) => Promise<Outcome<RequestLease>>;

const MAX_TENANTS = 1_024;
export const BLOCKS_PER_WINDOW = 60;
export const WINDOW_S = 60;

/** The leases of one isolate. */
export class Admission {
  readonly #entries = new Map<string, Entry>();

  /** What is known of the tenant's rate without asking. */
  peek(tenant: string, nowMs: number): RateState | undefined {
    const entry = this.#entries.get(tenant);
    return entry !== undefined && entry.limit > 0 && nowMs < entry.resetMs ? entry : undefined;
  }

  /** Why the tenant's operator lets this token call no more, as far as is known since the last lease. */
  barOf(tenant: string, tokenId: string): string | undefined {
    const entry = this.#entries.get(tenant);
    if (entry?.disabled === true) return 'the tenant is disabled';
    return entry?.revokedTokens.has(tokenId) === true ? 'the token is revoked' : undefined;
  }

  /** Spends one request, or refuses with `rate_limited`. */
  async admit(tenant: string, nowMs: number, ask: { limit: number; lease: Lease }): Promise<RateState> {
    const entry = this.#entryOf(tenant);
    if (nowMs >= entry.resetMs) entry.leased = 0;
    if (entry.leased === 0) await this.#renew(entry, nowMs, ask);
    if (entry.leased === 0) throw new Refusal(refusedUntil(entry, nowMs), rateHeaders(entry, nowMs));
    entry.leased -= 1;
    return { limit: entry.limit, remaining: entry.remaining + entry.leased, resetMs: entry.resetMs };
  }

  async #renew(entry: Entry, nowMs: number, ask: { limit: number; lease: Lease }): Promise<void> {
    // The object said that it is empty until then: nothing to ask.
    if (entry.limit > 0 && entry.remaining === 0 && nowMs < entry.resetMs) return;
    const block = Math.max(1, Math.floor(ask.limit / BLOCKS_PER_WINDOW));
    const isFirst = !entry.isLeasing;
    entry.isLeasing = true;
    const leased = await ask.lease(isFirst ? block : 1, entry.revision).finally(() => {
      if (isFirst) entry.isLeasing = false;
    });
    if (!leased.ok) throw new Refusal(leased);
    entry.leased += leased.value.granted;
    entry.limit = leased.value.limit;
    entry.remaining = leased.value.remaining;
    entry.resetMs = nowMs + leased.value.reset_s * 1_000;
    const { disabled, revision, revokedTokens } = leased.value.standing;
    entry.disabled = disabled;
    if (revokedTokens === null) return;
    entry.revision = revision;
    entry.revokedTokens = new Set(revokedTokens);
  }

  #entryOf(tenant: string): Entry {
    const known = this.#entries.get(tenant);
    if (known !== undefined) return known;
    if (this.#entries.size >= MAX_TENANTS) {
      const oldest = this.#entries.keys().next();
      if (!oldest.done) this.#entries.delete(oldest.value);
    }
    const entry: Entry = {
      leased: 0,
      isLeasing: false,
      limit: 0,
      remaining: 0,
      resetMs: 0,
      disabled: false,
      revision: undefined,
      revokedTokens: new Set(),
    };
    this.#entries.set(tenant, entry);
    return entry;
  }
}

function refusedUntil(rate: RateState, nowMs: number): Failure {
  const retryAfterS = secondsUntil(rate.resetMs, nowMs);
  return failure('rate_limited', `the tenant may make ${rate.limit} requests a minute`, {
    retry_after_s: retryAfterS,
  });
}

/** The fields in both their forms: single numbers, and the structured fields that replace them. */
export function rateHeaders(rate: RateState, nowMs: number): Record<string, string> {
  const resetS = secondsUntil(rate.resetMs, nowMs);
  return {
    'RateLimit-Limit': String(rate.limit),
    'RateLimit-Remaining': String(rate.remaining),
    'RateLimit-Reset': String(resetS),
    RateLimit: `"tenant";r=${rate.remaining};t=${resetS}`,
    'RateLimit-Policy': `"tenant";q=${rate.limit};w=${WINDOW_S}`,
  };
}

function secondsUntil(timeMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((timeMs - nowMs) / 1_000));
}
