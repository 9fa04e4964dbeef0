/** What a request makes in more than one step, with an `Idempotency-Key`: made once, and found by whoever asks again. */
import { failure, type Outcome } from '../../shared/errors.ts';
import type { Env } from '../env.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { SAFE, tenantCalls } from '../objects/object-calls.ts';

export interface Creation<T> {
  /** For something new. */
  id: () => Promise<string>;
  make: (id: string) => Promise<Outcome<T>>;
  /** What was made under the id, as far as it is there. */
  find: (id: string) => Promise<Outcome<T>>;
  /** So long the first request may be at it; what it had begun is gone then. */
  withinMs: number;
}

export async function createOnce<T>(
  place: { env: Env; tenant: string },
  idempotency: Idempotency | null,
  creation: Creation<T>,
): Promise<Outcome<T>> {
  const id = await creation.id();
  if (idempotency === null) return creation.make(id);
  const tenant = tenantCalls(place.env, place.tenant);
  const reserved = await tenant((stub) => stub.reserveCreate({ ...idempotency, id }), SAFE);
  if (!reserved.ok) return reserved;
  const { id: known, fresh, isMade, atMs } = reserved.value;
  const settle = (made: boolean) =>
    tenant((stub) => stub.settleCreate({ key: idempotency.key, id: known, isMade: made }), SAFE);
  if (fresh) {
    const made = await creation.make(known);
    // Where this is not heard, who asks again finds what there is, or nothing when its time is over.
    await settle(made.ok);
    return made;
  }
  const found = await creation.find(known);
  if (found.ok) return found;
  if (isMade && found.code === 'not_found') {
    return failure('not_found', 'what the first request with this key made was removed since');
  }
  if (isMade) return found;
  if (Date.now() - atMs < creation.withinMs) {
    return failure('idempotency_in_progress', 'the first request with this key is not answered yet', {
      retry_after_s: 1,
    });
  }
  await settle(false);
  return createOnce(place, idempotency, creation);
}
