/**
 * Whether the calls of a program are made still: each counts as a request of its caller does, and who is barred calls no more, be
 * it by a program begun before.
 */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import { requireUnbarred } from '../../../engine/owner.ts';
import type { Env } from '../../../env.ts';
import { BLOCKS_PER_WINDOW } from '../../../middleware/admission.ts';
import { outcomeOf, Refusal } from '../../../middleware/refusal.ts';
import type { BarredCaller } from '../../tenant/bars/bars.ts';

const TRUSTED_MS = 30_000;

interface Leased {
  /** Requests leased and not yet spent. */
  requests: number;
  untilMs: number;
  /**
   * What is asked for next: twice as much each time, so that no program takes much more than it spends, up to what is leased
   * elsewhere, a small part of what the rate lets pass in its window.
   */
  block: number;
  /** Whether a block is being asked for: others then ask for one request only. */
  isLeasing: boolean;
}

export class ProgramAdmission {
  readonly #env: Env;
  /** By the number of the program's execution. */
  readonly #leases = new Map<number, Leased>();

  constructor(env: Env) {
    this.#env = env;
  }

  async admit(n: number, owner: BarredCaller & { tenant: string }): Promise<Outcome<null>> {
    const leased = this.#leaseOf(n);
    if (leased.requests > 0 && Date.now() < leased.untilMs) {
      leased.requests -= 1;
      return success(null);
    }
    return outcomeOf(async () => {
      const isFirst = !leased.isLeasing;
      leased.isLeasing = true;
      const lease = await requireUnbarred(this.#env, owner, isFirst ? leased.block : 1).finally(() => {
        if (isFirst) leased.isLeasing = false;
      });
      const { granted, limit, by, reset_s } = lease;
      if (granted === 0) {
        const detail = `the ${by} may make ${limit} requests a minute, the next one in ${reset_s} s`;
        throw new Refusal(failure('rate_limited', detail, { retry_after_s: reset_s }));
      }
      const isStale = Date.now() >= leased.untilMs;
      leased.requests = (isStale ? 0 : leased.requests) + granted - 1;
      leased.untilMs = Date.now() + TRUSTED_MS;
      if (isFirst)
        leased.block = Math.max(1, Math.min(2 * leased.block, Math.floor(limit / BLOCKS_PER_WINDOW)));
      return success(null);
    });
  }

  ended(n: number): void {
    this.#leases.delete(n);
  }

  #leaseOf(n: number): Leased {
    const known = this.#leases.get(n);
    if (known !== undefined) return known;
    const leased = { requests: 0, untilMs: 0, block: 1, isLeasing: false };
    this.#leases.set(n, leased);
    return leased;
  }
}
