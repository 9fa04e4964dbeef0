/** One call in a session of its own that ends with it. */
import type { Outcome } from '../../shared/errors.ts';
import type { CreateSession } from '../../shared/session.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { UNSAFE } from '../objects/object-calls.ts';
import type { Exchange } from '../routing/route.ts';
import { placeAndCreate, reserveSession } from './create-session.ts';
import { type OwnSession, sessionOf } from './own-session.ts';

/** An idle session of this kind is one whose caller went away before its call began. */
const IDLE_TIMEOUT_S = 60;

/** `run` makes the call; with a key it may find a session in which the call has been made already. */
export async function callInOwnSession<T>(
  exchange: Exchange<'tenant'>,
  about: {
    place: Pick<CreateSession, 'image' | 'limits' | 'env' | 'network' | 'pool' | 'region'>;
    idempotency: Idempotency | null;
  },
  run: (session: OwnSession) => Promise<Outcome<T>>,
): Promise<Outcome<T>> {
  const reserved = await reserveSession(exchange, about.idempotency);
  const session = sessionOf(exchange, reserved.sessionId);
  if (!reserved.fresh) {
    const replayed = await run(session);
    // The first request may have ended before it had a session: then this one is the first.
    if (replayed.ok || replayed.code !== 'not_found') return replayed;
  }
  const created = await placeAndCreate(exchange, {
    ...reserved,
    request: {
      ...about.place,
      metadata: {},
      labels: {},
      idle_timeout_s: IDLE_TIMEOUT_S,
      lifetime_s: null,
      on_host_loss: 'fail',
      rollback: 'never',
    },
    ephemeral: true,
  });
  if (!created.ok) return created;
  const answer = await run(session);
  // Without a call of its own the session has no end to wait for.
  if (!answer.ok) await session.call((stub) => stub.destroy(session.caller), UNSAFE);
  return answer;
}
