/** A call that somebody waits for and may give up: accepted once, then awaited and stopped by its id. */
import { type Outcome, success } from '../../shared/errors.ts';
import { type Execute, ExecuteSchema, type Execution } from '../../shared/execution.ts';
import { randomHandle } from '../../shared/ids.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { SAFE } from '../objects/object-calls.ts';
import type { ExecuteInput } from '../objects/session/port.ts';
import type { Exchange } from '../routing/route.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import type { ResolvedCall } from '../tools/resolve-call.ts';
import { type EdgeRun, edgeRun } from './edge-call.ts';
import type { OwnSession } from './own-session.ts';

export interface AttendedCall {
  session: OwnSession;
  input: ExecuteInput;
  ephemeral: boolean;
  /** Takes the call in, the first time that it is called. */
  accepted: () => Promise<Outcome<Execution>>;
  /** Of a call that runs at the edge: its one run, begun when it is accepted. */
  edge: EdgeRun | undefined;
  finish: Attended['finish'];
}

type Attended = Pick<ResolvedCall<Execute>, 'calledAs' | 'constraints' | 'performance' | 'finish'>;

export function attendedCall(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  call: {
    body: Pick<Execute, 'tool_name' | 'arguments'> & { timeout_ms?: number };
    idempotency: Idempotency | null;
    resolved: Attended;
    /** Whether its output is read along. */
    stream?: boolean;
    /** Of a call at the edge. */
    onProgress?: OnEdgeProgress | undefined;
    /** Whether the session ends with the call. */
    ephemeral?: boolean;
    /** Whether it is looked for by its id, also when its session has ended. */
    isFoundAgain?: boolean;
  },
): AttendedCall {
  const needsKey = call.ephemeral === true || call.isFoundAgain === true;
  const input: ExecuteInput = {
    calledAs: call.resolved.calledAs,
    constraints: call.resolved.constraints,
    caller: session.caller,
    // Nobody writes to a call that is only awaited, so it reads the end of its input at once.
    body: ExecuteSchema.parse({ ...call.body, stdin: false, stream: call.stream ?? false }),
    idempotency: call.idempotency ?? (needsKey ? ownKey() : null),
    requestId: exchange.requestId,
    admittedMs: exchange.receivedMs,
  };
  const { performance } = call.resolved;
  let accepting: Promise<Outcome<Execution>> | undefined;
  return {
    session,
    edge:
      performance === undefined
        ? undefined
        : edgeRun(session, {
            performance,
            finish: call.resolved.finish,
            idempotency: call.idempotency,
            onProgress: call.onProgress,
          }),
    finish: call.resolved.finish,
    input,
    ephemeral: call.ephemeral ?? false,
    accepted: () => {
      // With a key a repeated call finds the first one, so it may be repeated after a reset.
      accepting ??= session.call((stub) => stub.accept(input), { safe: input.idempotency !== null });
      return accepting;
    },
  };
}

/** A key that no other call has: what ends with its session is only found by one afterwards. */
function ownKey(): Idempotency {
  return { key: `call:${randomHandle()}`, fingerprint: '' };
}

/**
 * Resolves when the call has its place in the session's queue, or has begun at the edge. Calls that are accepted in turn
 * run in turn.
 */
export async function acceptCall({ accepted, edge }: AttendedCall): Promise<Outcome<Execution | null>> {
  if (edge !== undefined) {
    const begun = await edge.begin();
    // Whoever waits for it sees what becomes of it.
    if (begun.ok) edge.end().catch(() => undefined);
    return begun;
  }
  return accepted();
}

/** Resolves at the end. A call that was not accepted yet is. */
export async function awaitCall({
  session,
  input,
  ephemeral,
  accepted,
  edge,
  finish,
}: AttendedCall): Promise<Outcome<Execution>> {
  if (edge !== undefined) return edge.end();
  if (ephemeral) {
    const executed = await session.call((stub) => stub.execute(input), SAFE);
    return executed.ok ? success(finish(executed.value)) : executed;
  }
  const call = await accepted();
  if (!call.ok) return call;
  const { execution_id } = call.value;
  const executed = await session.call((stub) => stub.wait(session.caller, execution_id), SAFE);
  return executed.ok ? success(finish(executed.value)) : executed;
}

/** Stops the call, wherever it is on its way. */
export async function stopCall(call: AttendedCall): Promise<Outcome<null>> {
  if (call.edge !== undefined) {
    call.edge.stop();
    return success(null);
  }
  const accepted = await acceptCall(call);
  if (!accepted.ok) return accepted;
  if (accepted.value === null) return success(null);
  const { execution_id } = accepted.value;
  const { session } = call;
  const stopped = await session.call((stub) => stub.interrupt(session.caller, execution_id), SAFE);
  // It ended by itself in between.
  return stopped.ok || stopped.code === 'execution_not_running' ? success(null) : stopped;
}
