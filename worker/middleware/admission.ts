/**
 * The request rate of a tenant. The tenant's object gives out leases of a block of requests; an isolate spends them
 * without asking again, so the object sees a small part of the requests.
 */
import { type Failure, failure, type Outcome } from '../../shared/errors.ts';
import { type BarredCaller, type Bars, barOf } from '../objects/tenant/bars/bars.ts';
import type { RequestLease } from '../objects/tenant/port.ts';
import { Refusal } from './refusal.ts';

export interface RateState {
  limit: number;
  remaining: number;
  resetMs: number;
  by: 'tenant' | 'subject';
}

interface Entry extends RateState {
  /** Requests leased and not yet spent here. */
  leased: number;
  /** Whether a request is asking for a block now: others then ask for one request only, not for a block each. */
  isLeasing: boolean;
}

/** What is known of a tenant since the last lease, whoever of it asked. */
interface TenantEntry {
  /** Each subject has a rate of its own, and leases of its own. */
  bySubject: boolean;
  disabled: boolean;
  revision: number | undefined;
  bars: Bars;
  heardAtMs: number;
}

export interface AdmittedCaller {
  tenant: string;
  subject: string;
}

export type Lease = (count: number, revision: number | undefined) => Promise<Outcome<RequestLease>>;

const MAX_TENANTS = 1_024;
const MAX_RATES = 4_096;
export const BLOCKS_PER_WINDOW = 60;
export const WINDOW_S = 60;
/** Streams that are open ask for what has been revoked where no call has asked for so long. */
export const STANDING_LIVES_MS = 15_000;

/** The leases of one isolate. */
export class Admission {
  readonly #tenants = new Map<string, TenantEntry>();
  readonly #rates = new Map<string, Entry>();

  /** What is known of the caller's rate without asking. */
  peek(caller: AdmittedCaller, nowMs: number): RateState | undefined {
    const entry = this.#rates.get(this.#keyOf(caller));
    return entry !== undefined && entry.limit > 0 && nowMs < entry.resetMs ? entry : undefined;
  }

  /** Why the tenant's operator lets this token call no more, as far as is known since the last lease. */
  barOf(caller: BarredCaller & { tenant: string }): string | undefined {
    const entry = this.#tenants.get(caller.tenant);
    if (entry === undefined) return undefined;
    return entry.disabled ? 'the tenant is disabled' : barOf(entry.bars, caller);
  }

  /** As `barOf`, from what is known since a moment ago: for who makes no calls and is there all the same. */
  async barNow(
    caller: BarredCaller & { tenant: string },
    nowMs: number,
    lease: Lease,
  ): Promise<string | undefined> {
    const tenant = this.#tenantOf(caller.tenant);
    if (nowMs - tenant.heardAtMs >= STANDING_LIVES_MS) {
      // Asked for once by all who come meanwhile.
      tenant.heardAtMs = nowMs;
      const leased = await lease(0, tenant.revision);
      if (leased.ok) hear(tenant, leased.value, nowMs);
      else tenant.heardAtMs = 0;
    }
    return this.barOf(caller);
  }

  /** Refuses as `admit` would, where that is known without asking. Spends nothing. */
  requireRate(caller: AdmittedCaller, nowMs: number): void {
    const entry = this.#rates.get(this.#keyOf(caller));
    if (entry !== undefined && entry.leased === 0 && isEmpty(entry, nowMs)) throw rateRefusal(entry, nowMs);
  }

  /** Spends one request, or refuses with `rate_limited`. */
  async admit(
    caller: AdmittedCaller,
    nowMs: number,
    ask: { limit: number; lease: Lease },
  ): Promise<RateState> {
    let entry = this.#rateOf(this.#keyOf(caller));
    if (nowMs >= entry.resetMs) entry.leased = 0;
    if (entry.leased === 0) entry = await this.#renew(entry, { caller, nowMs }, ask);
    if (entry.leased === 0) throw rateRefusal(entry, nowMs);
    entry.leased -= 1;
    const { limit, leased, resetMs, by } = entry;
    return { limit, remaining: entry.remaining + leased, resetMs, by };
  }

  /** The entry that the lease is in: the first one tells whether subjects have rates of their own. */
  async #renew(
    asking: Entry,
    { caller, nowMs }: { caller: AdmittedCaller; nowMs: number },
    ask: { limit: number; lease: Lease },
  ): Promise<Entry> {
    if (isEmpty(asking, nowMs)) return asking;
    const perWindow = asking.limit > 0 ? asking.limit : ask.limit;
    const block = Math.max(1, Math.floor(perWindow / BLOCKS_PER_WINDOW));
    const isFirst = !asking.isLeasing;
    asking.isLeasing = true;
    const tenant = this.#tenantOf(caller.tenant);
    const leased = await ask.lease(isFirst ? block : 1, tenant.revision).finally(() => {
      if (isFirst) asking.isLeasing = false;
    });
    if (!leased.ok) throw new Refusal(leased);
    const { granted, limit, remaining, by } = leased.value;
    hear(tenant, leased.value, nowMs);
    const entry = this.#rateOf(this.#keyOf(caller));
    entry.leased += granted;
    entry.limit = limit;
    entry.remaining = remaining;
    entry.by = by;
    entry.resetMs = nowMs + leased.value.reset_s * 1_000;
    return entry;
  }

  #keyOf({ tenant, subject }: AdmittedCaller): string {
    return this.#tenants.get(tenant)?.bySubject === true ? JSON.stringify([tenant, subject]) : tenant;
  }

  #tenantOf(tenant: string): TenantEntry {
    return entryOf(this.#tenants, tenant, MAX_TENANTS, () => ({
      bySubject: false,
      disabled: false,
      revision: undefined,
      bars: { tokens: [], apiKeys: [], subjects: [] },
      heardAtMs: 0,
    }));
  }

  #rateOf(key: string): Entry {
    return entryOf(this.#rates, key, MAX_RATES, () => ({
      leased: 0,
      isLeasing: false,
      limit: 0,
      remaining: 0,
      resetMs: 0,
      by: 'tenant',
    }));
  }
}

function hear(tenant: TenantEntry, { bySubject, standing }: RequestLease, nowMs: number): void {
  tenant.bySubject = bySubject;
  tenant.disabled = standing.disabled;
  tenant.heardAtMs = nowMs;
  if (standing.bars === null) return;
  tenant.revision = standing.revision;
  tenant.bars = standing.bars;
}

/** The oldest makes room. */
function entryOf<T>(entries: Map<string, T>, key: string, max: number, make: () => T): T {
  const known = entries.get(key);
  if (known !== undefined) return known;
  if (entries.size >= max) {
    const oldest = entries.keys().next();
    if (!oldest.done) entries.delete(oldest.value);
  }
  const entry = make();
  entries.set(key, entry);
  return entry;
}

/** The object said that it is empty until then: nothing to ask. */
function isEmpty({ limit, remaining, resetMs }: RateState, nowMs: number): boolean {
  return limit > 0 && remaining === 0 && nowMs < resetMs;
}

function rateRefusal(rate: RateState, nowMs: number): Refusal {
  return new Refusal(refusedUntil(rate, nowMs), rateHeaders(rate, nowMs));
}

function refusedUntil(rate: RateState, nowMs: number): Failure {
  const retryAfterS = secondsUntil(rate.resetMs, nowMs);
  return failure('rate_limited', `the ${rate.by} may make ${rate.limit} requests a minute`, {
    retry_after_s: retryAfterS,
    limit: {
      name: 'requests_per_minute',
      scope: rate.by,
      limit: rate.limit,
      used: rate.limit,
      resets_at: new Date(nowMs + retryAfterS * 1_000).toISOString(),
    },
  });
}

/** The fields in both their forms: single numbers, and the structured fields that replace them. */
export function rateHeaders(rate: RateState, nowMs: number): Record<string, string> {
  const resetS = secondsUntil(rate.resetMs, nowMs);
  return {
    'RateLimit-Limit': String(rate.limit),
    'RateLimit-Remaining': String(rate.remaining),
    'RateLimit-Reset': String(resetS),
    RateLimit: `"${rate.by}";r=${rate.remaining};t=${resetS}`,
    'RateLimit-Policy': `"${rate.by}";q=${rate.limit};w=${WINDOW_S}`,
  };
}

function secondsUntil(timeMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((timeMs - nowMs) / 1_000));
}
