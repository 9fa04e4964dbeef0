/** A call of a tool that needs an approval: asked for, and its result given to who comes back for it. */
import type { SealedCallback } from '../../shared/callback.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { approvalCalls, SAFE, UNSAFE } from '../objects/object-calls.ts';
import type { Exchange } from '../routing/route.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import type { CallToApprove } from '../tools/resolve-call.ts';
import type { OwnSession } from './own-session.ts';

const LOOK_INTERVAL_MS = 250;

/** The waiting execution. A call whose session is not the caller's, or not there, is not taken. */
export async function askApproval(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  about: {
    call: CallToApprove;
    idempotency: Idempotency | null;
    claims: boolean;
    callback?: SealedCallback | null;
  },
): Promise<Outcome<Execution>> {
  const described = await session.call((stub) => stub.describe(session.caller), SAFE);
  if (!described.ok) return described;
  const { call, ...asked } = about;
  const { scopes, toolPolicy, tokenId, issuedAtMs, apiKeyId } = exchange.principal;
  const waiting = {
    caller: session.caller,
    scopes: [...scopes],
    toolPolicy,
    tokenId,
    issuedAtMs,
    apiKeyId,
    sessionId: session.sessionId,
    tool: call.identity,
    arguments: call.arguments,
    timeoutMs: call.timeoutMs,
    requestId: exchange.requestId,
    madeBy: 'approvals' as const,
  };
  const approvals = approvalCalls(exchange.env, session.caller.tenant);
  return approvals((stub) => stub.ask({ call: waiting, ...asked }), UNSAFE);
}

/**
 * For models, which cannot wait: the first call is taken in and says so, and the same call after the decision gives what
 * became of it.
 */
export async function approvedOutcome(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  call: CallToApprove,
  onProgress?: OnEdgeProgress,
): Promise<Outcome<Execution>> {
  const asked = await askApproval(exchange, session, { call, idempotency: null, claims: true });
  if (!asked.ok) return asked;
  const { execution_id: executionId, approval, status } = asked.value;
  if (status === 'waiting') {
    const detail = `${call.identity.name} needs an approval; the call waits as ${executionId} until ${approval?.expires_at}: call again with the same arguments once it is given`;
    return failure('approval_required', detail);
  }
  const ended = isTerminal(status)
    ? success(asked.value)
    : await endOfApproved(session, executionId, { timeoutMs: call.timeoutMs, onProgress });
  if (ended.ok && isTerminal(ended.value.status)) {
    await approvalCalls(exchange.env, session.caller.tenant)((stub) => stub.claimed(executionId), SAFE);
  }
  return ended;
}

/** Of a call that is made now; not terminal where it has none within the time. */
export async function endOfApproved(
  session: OwnSession,
  executionId: string,
  { timeoutMs, onProgress }: { timeoutMs: number; onProgress?: OnEdgeProgress | undefined },
): Promise<Outcome<Execution>> {
  const deadlineMs = Date.now() + timeoutMs;
  let heard = 0;
  for (;;) {
    const waited = await session.call((stub) => stub.wait(session.caller, executionId), SAFE);
    // One that is made at the edge is only looked at.
    const found = waited.ok ? waited : await look();
    if (found.ok && isTerminal(found.value.status)) return found;
    if (Date.now() >= deadlineMs) return found;
    await new Promise((resolve) => setTimeout(resolve, LOOK_INTERVAL_MS));
  }

  async function look(): Promise<Outcome<Execution>> {
    const found = await session.call((stub) => stub.waitCall(session.caller, executionId, 0), SAFE);
    if (!found.ok) return found;
    const { execution, progress } = found.value;
    if (progress !== null && progress.at > heard) {
      heard = progress.at;
      onProgress?.(progress);
    }
    return success(execution);
  }
}
