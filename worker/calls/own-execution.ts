/** An execution of a session, or a call of it that waits for an approval: found, and stopped. */
import type { Outcome } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { approvalCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import type { SessionPort } from '../objects/session/port.ts';
import type { Exchange } from '../routing/route.ts';
import type { OwnSession } from './own-session.ts';

export async function findExecution(
  { env }: Exchange<'tenant'>,
  session: OwnSession,
  { executionId, read }: { executionId: string; read: (stub: SessionPort) => Promise<Outcome<Execution>> },
): Promise<Outcome<Execution>> {
  const execution = await session.call(read, SAFE);
  if (execution.ok || execution.code !== 'not_found') return execution;
  const place = { sessionId: session.sessionId, executionId };
  const approvals = approvalCalls(env, session.caller.tenant);
  const waiting = await approvals((stub) => stub.find(session.caller, place), SAFE);
  // Where neither has it, the session's own answer is given: that of a session of others is the same.
  return waiting.ok || waiting.code !== 'not_found' ? waiting : execution;
}

/** Without a name, whatever runs is meant. */
export async function stopExecution(
  { env }: Exchange<'tenant'>,
  session: OwnSession,
  executionId: string | null,
): Promise<Outcome<{ execution_id: string | null }>> {
  // Stopping twice stops once.
  const stopped = await session.call((stub) => stub.interrupt(session.caller, executionId), SAFE);
  if (stopped.ok || stopped.code !== 'not_found' || executionId === null) return stopped;
  const place = { sessionId: session.sessionId, executionId };
  const approvals = approvalCalls(env, session.caller.tenant);
  return approvals((stub) => stub.cancel(session.caller, place), UNSAFE);
}
