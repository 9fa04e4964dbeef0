/** What an object says to its tenant of what it stores: one word after the other, each with a higher number. */
import * as z from 'zod';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Env } from '../env.ts';
import { callObject } from '../middleware/call-object.ts';
import { logWarning, messageOf } from './log.ts';
import type { StorageHold } from './tenant/ledger/holds/holds.ts';

/** Something that is stored, of which the tenant does not know yet what it takes. */
export const UntoldStorageSchema = z.object({
  id: z.string(),
  tenant: z.string(),
  subject: z.string(),
  bytes: z.number(),
});
export type UntoldStorage = z.infer<typeof UntoldStorageSchema>;

export interface StoredThings {
  untold(limit: number): UntoldStorage[];
  markTold(id: string, bytes: number): void;
}

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
  /** What each takes counts against the tenant's limits. False where it has to be told again. */
  async tell(things: StoredThings, holdId: (id: string) => string, atOnce: number): Promise<boolean> {
    try {
      for (const { id, tenant, subject, bytes } of things.untold(atOnce)) {
        const held = await this.hold(tenant, { id: holdId(id), subject, bytes, isStored: true });
        if (!held.ok) return false;
        things.markTold(id, bytes);
      }
    } catch (error: unknown) {
      logWarning('storage_not_told', { detail: messageOf(error) });
      return false;
    }
    return things.untold(1).length === 0;
  }
}
