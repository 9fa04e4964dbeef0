/** Whether one session or one execution more is within the limits. Pure: what is used goes in, the refusal comes out. */
import { type Failure, failure, type LimitReached } from '../../../../shared/errors.ts';
import type { LimitName, LimitScope } from '../../../../shared/tenant.ts';

/** What is used of one limit, and what is wanted of it, in its unit. */
export interface Claim {
  name: LimitName;
  scope: LimitScope;
  limit: number | null;
  used: number;
  /** Of `used`, what is only reserved: some of it may come back soon. */
  reserved?: number;
  wanted: number;
  /** When the limit begins anew, in milliseconds since the epoch; null where it does not. */
  resetsAtMs: number | null;
}

const SOON_S = 1;
const SETTLED_SOON_S = 5;

/** The first claim that does not fit, as a refusal that says which, how much and when. */
export function refusalOf(claims: readonly Claim[], nowMs: number): Failure | undefined {
  const claim = claims.find(({ limit, used, wanted }) => limit !== null && used + wanted > limit);
  if (claim === undefined || claim.limit === null) return undefined;
  const { name, scope, limit, used, wanted, resetsAtMs } = claim;
  const settles = (claim.reserved ?? 0) > 0 && used - (claim.reserved ?? 0) + wanted <= limit;
  const reached: LimitReached = {
    name,
    scope,
    limit,
    used,
    resets_at: resetsAtMs === null ? null : new Date(resetsAtMs).toISOString(),
  };
  const detail = detailOf(claim, limit);
  if (scope === 'session') return failure('budget_exhausted', detail, { limit: reached });
  const untilReset = resetsAtMs === null ? SOON_S : Math.max(1, Math.ceil((resetsAtMs - nowMs) / 1_000));
  return failure('quota_exceeded', detail, {
    limit: reached,
    retry_after_s: settles ? SETTLED_SOON_S : untilReset,
  });
}

function detailOf({ name, scope, used, wanted, reserved = 0 }: Claim, limit: number): string {
  const of = `${name} of the ${scope} is ${limit}`;
  const held = reserved > 0 ? `, ${round(reserved)} of them reserved for what runs` : '';
  return `${of}: ${round(used)} are used${held}, and this needs up to ${round(wanted)}`;
}

function round(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
