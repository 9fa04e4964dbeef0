/**
 * The request rates of a tenant and of its subjects, as token buckets. In memory only: an object that had nothing to do
 * long enough to be evicted has full buckets anyway.
 */
import { fullBucket, type TokenBucket, takeTokens } from './token-bucket.ts';

export interface RateGrant {
  granted: number;
  limit: number;
  remaining: number;
  resetMs: number;
  /** Whose rate is the one that binds. */
  by: 'tenant' | 'subject';
}

const MAX_SUBJECTS = 10_000;

export class Rates {
  #tenant: TokenBucket | undefined;
  readonly #subjects = new Map<string, TokenBucket>();

  /** Out of the rate of the subject too, where it has one. */
  take(
    wanted: number,
    rates: { tenant: number; subject: { name: string; perMinute: number } | null },
    nowMs: number,
  ): RateGrant {
    const { subject } = rates;
    if (subject === null) return this.#takeOfTenant(wanted, rates.tenant, nowMs);
    const own = this.#takeOf(this.#subjects.get(subject.name), subject.perMinute, { wanted, nowMs });
    const whole = this.#takeOfTenant(own.granted, rates.tenant, nowMs);
    const unused = own.granted - whole.granted;
    this.#keep(subject.name, { ...own.bucket, tokens: own.bucket.tokens + unused });
    if (own.granted > 0 && whole.granted === 0) return whole;
    return {
      granted: whole.granted,
      limit: subject.perMinute,
      remaining: own.remaining + unused,
      resetMs: own.resetMs,
      by: 'subject',
    };
  }

  #takeOfTenant(wanted: number, perMinute: number, nowMs: number): RateGrant {
    const taken = this.#takeOf(this.#tenant, perMinute, { wanted, nowMs });
    this.#tenant = taken.bucket;
    const { granted, remaining, resetMs } = taken;
    return { granted, remaining, resetMs, limit: perMinute, by: 'tenant' };
  }

  #takeOf(bucket: TokenBucket | undefined, perMinute: number, request: { wanted: number; nowMs: number }) {
    const rate = { capacity: perMinute, perMinute };
    return takeTokens(bucket ?? fullBucket(rate, request.nowMs), rate, request);
  }

  #keep(subject: string, bucket: TokenBucket): void {
    this.#subjects.delete(subject);
    if (this.#subjects.size >= MAX_SUBJECTS) {
      const oldest = this.#subjects.keys().next();
      if (oldest.done !== true) this.#subjects.delete(oldest.value);
    }
    this.#subjects.set(subject, bucket);
  }
}
