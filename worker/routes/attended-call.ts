/** A call that somebody waits for and may give up: accepted, awaited, and stopped by the key that it was accepted with. */
import { type Outcome, success } from '../../shared/errors.ts';
import { type Execute, ExecuteSchema, type Execution } from '../../shared/execution.ts';
import { randomHandle } from '../../shared/ids.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import type { ExecuteInput } from '../objects/session/port.ts';
import { SAFE } from './object-calls.ts';
import type { OwnSession } from './own-session.ts';
import type { Exchange } from './route.ts';

export interface AttendedCall {
  session: OwnSession;
  input: ExecuteInput;
}

export function attendedCall(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  call: {
    body: Pick<Execute, 'tool_name' | 'arguments'> & { timeout_ms?: number };
    idempotency: Idempotency | null;
  },
): AttendedCall {
  return {
    session,
    input: {
      caller: session.caller,
      // Nobody writes to a call that is only awaited, so it reads the end of its input at once.
      body: ExecuteSchema.parse({ ...call.body, stdin: false }),
      idempotency: call.idempotency ?? ownKey(),
      requestId: exchange.requestId,
      admittedMs: exchange.receivedMs,
    },
  };
}

/** A key that no other call has: with it the call can be asked for again. */
function ownKey(): Idempotency {
  return { key: `call:${randomHandle()}`, fingerprint: '' };
}

/** Resolves when the call has its place in the session's queue. Calls that are accepted in turn run in turn. */
export function acceptCall({ session, input }: AttendedCall): Promise<Outcome<Execution>> {
  const detached = { ...input, body: { ...input.body, detach: true } };
  return session.call((stub) => stub.execute(detached), SAFE);
}

/** Resolves at the end. A call that was not accepted yet is. */
export function awaitCall({ session, input }: AttendedCall): Promise<Outcome<Execution>> {
  return session.call((stub) => stub.execute(input), SAFE);
}

/** Stops the call, wherever it is on its way. */
export async function stopCall(call: AttendedCall): Promise<Outcome<null>> {
  const accepted = await acceptCall(call);
  if (!accepted.ok) return accepted;
  const { session } = call;
  const stopped = await session.call(
    (stub) => stub.interrupt(session.caller, accepted.value.execution_id),
    SAFE,
  );
  // It ended by itself in between.
  return stopped.ok || stopped.code === 'execution_not_running' ? success(null) : stopped;
}
