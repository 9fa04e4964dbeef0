/** What an object says to its tenant of what it stores: one word after the other, each with a higher number. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Env } from '../env.ts';
import { callObject } from '../middleware/call-object.ts';
import type { StorageHold } from './tenant/ledger/holds/holds.ts';

export class StorageBook {
  readonly #env: Env;
  #lastN = 0;

  constructor(env: Env) {
    this.#env = env;
  }

  /** Refused where the tenant may not store so much more. */
  async hold(tenant: string, hold: Omit<StorageHold, 'n'>): Promise<Outcome<null>> {
    // By the clock, so that it goes on rising when this memory is gone.
    this.#lastN = Math.max(this.#lastN + 1, Date.now() * 1_000);
    const word = { ...hold, n: this.#lastN };
    // What something takes is absolute: telling it twice is telling it once.
    const held = await callObject(() => this.#env.TENANT.getByName(tenant).holdStorage(word), { safe: true });
    if (held.ok) return success(null);
    // As values of its own: what came of a call, given on to another caller, keeps this object in memory for as long.
    const { code, detail, limit, retry_after_s } = held;
    return failure(code, detail, {
      ...(limit === undefined ? {} : { limit: { ...limit } }),
      ...(retry_after_s === undefined ? {} : { retry_after_s }),
    });
  }
}
