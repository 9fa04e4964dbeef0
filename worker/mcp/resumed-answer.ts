/** What is left of a call that somebody came back for: its progress from a place on, and its answer. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { SSE_HEARTBEAT_MS } from '../../shared/limits.ts';
import type { OwnSession } from '../calls/own-session.ts';
import type { StoredTool } from '../objects/catalogue/port.ts';
import { SAFE, UNSAFE } from '../objects/object-calls.ts';
import { finished, identityOf } from '../tools/resolve-call.ts';
import type { StreamPoint } from './event-id.ts';
import { followOutput } from './follow-output.ts';
import { programResult } from './program-tools.ts';
import { type OnProgress, progressOfServer } from './progress.ts';
import { callResult, failureResult } from './result.ts';
import type { TakenCall } from './taken-call.ts';

export interface ResumedCall {
  session: OwnSession;
  point: StreamPoint;
  /** As it is registered now; null for one that is built in, and a failure for one that the caller may not call any more. */
  tool: Outcome<StoredTool | null>;
}

/** Follows the progress to its end, then gives the answer. */
export async function resumedAnswer(
  { session, point, tool }: ResumedCall,
  { signal, onProgress }: { signal: AbortSignal; onProgress: OnProgress | undefined },
): Promise<CallToolResult> {
  if (!tool.ok) return failureResult(tool);
  const { call } = point;
  const { executionId, form, ownSession, atEdge } = call;
  const report = point.isLast ? undefined : onProgress;
  if (form === 'program') {
    const followed = report === undefined ? undefined : followOutput(session, executionId, report, point);
    const waited = await session.call((stub) => stub.waitProgram(session.caller, executionId), SAFE);
    // One that waits for its caller goes on writing later: only what there is now is read to its end.
    if (waited.ok && isTerminal(waited.value.status)) await followed?.ended;
    followed?.flush();
    followed?.close();
    return waited.ok ? programResult(waited.value) : gone(waited);
  }
  const ended = atEdge
    ? await endOfEdgeCall(session, executionId, report)
    : await endOfCall(session, point, { signal, onProgress: report });
  if (!ended.ok) return gone(ended);
  return callResult(asPromised(ended.value, call, tool.value), { form, ownSession });
}

/** Stops the call, as its client asked. One at the edge is stopped where it is made. */
export async function stopResumed({ session, point }: ResumedCall): Promise<void> {
  const { executionId, ownSession, atEdge } = point.call;
  if (atEdge) return;
  const { caller, call } = session;
  await (ownSession
    ? call((stub) => stub.destroy(caller), UNSAFE)
    : call((stub) => stub.interrupt(caller, executionId), SAFE));
}

async function endOfCall(
  session: OwnSession,
  point: StreamPoint,
  { signal, onProgress }: { signal: AbortSignal; onProgress: OnProgress | undefined },
): Promise<Outcome<Execution>> {
  const { executionId } = point.call;
  if (onProgress !== undefined) {
    const followed = followOutput(session, executionId, onProgress, point);
    signal.addEventListener('abort', followed.close, { once: true });
    await followed.ended;
    if (!signal.aborted) followed.flush();
    followed.close();
  }
  return session.call((stub) => stub.wait(session.caller, executionId), SAFE);
}

async function endOfEdgeCall(
  session: OwnSession,
  executionId: string,
  onProgress: OnProgress | undefined,
): Promise<Outcome<Execution>> {
  let heard = 0;
  for (;;) {
    const looked = await session.call(
      (stub) => stub.waitCall(session.caller, executionId, SSE_HEARTBEAT_MS),
      SAFE,
    );
    if (!looked.ok) return looked;
    const { execution, progress } = looked.value;
    if (progress !== null && progress.at > heard) {
      heard = progress.at;
      onProgress?.(progressOfServer(progress));
    }
    if (isTerminal(execution.status)) return success(execution);
  }
}

/** By the definition with which it was called; where that is another by now, nothing can be said of its promise. */
function asPromised(execution: Execution, { tool }: TakenCall, stored: StoredTool | null): Execution {
  if (stored === null || identityOf(stored.tool).digest !== tool?.digest) return execution;
  return finished(stored.tool, execution);
}

/** An answer like any other: a client that got none would come back again and again. */
function gone(refused: Exclude<Outcome<unknown>, { ok: true }>): CallToolResult {
  if (refused.code !== 'not_found') return failureResult(refused);
  return failureResult(failure('not_found', 'the result of this call is no longer kept'));
}
