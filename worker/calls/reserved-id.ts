/** The id of what a request makes: with an `Idempotency-Key`, always the one that its first use was given. */
import type { Idempotency } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls } from '../objects/object-calls.ts';
import type { Exchange } from '../routing/route.ts';

export async function reservedId(
  { env, principal }: Exchange<'tenant'>,
  idempotency: Idempotency | null,
  id: string,
): Promise<string> {
  if (idempotency === null) return id;
  // The same reservation made twice is one reservation.
  const reserve = tenantCalls(env, principal.tenant);
  return unwrap(await reserve((stub) => stub.reserveCreate({ ...idempotency, id }), SAFE)).id;
}
