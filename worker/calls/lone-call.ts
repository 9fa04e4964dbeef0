/**
 * A call that the gateway makes in no session: its answer has a receipt that is a chain of one. It is kept only with a
 * key, in an object of its own, so that a repeated call gets the answer of the first.
 */
import type { Execution } from '../../shared/execution.ts';
import { newId, newSessionId } from '../../shared/ids.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../shared/receipt.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { keyedCalls, SAFE } from '../objects/object-calls.ts';
import type { MadeCall } from '../objects/session/edge-receipts/made.ts';
import { edgeReceiptFacts, signEdgeReceipt } from '../objects/session/edge-receipts/receipt.ts';
import type { Exchange } from '../routing/route.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import { givenBy, givenText } from '../tools/given.ts';
import type { EdgePerformance } from '../tools/performance.ts';
import { reservedId } from './reserved-id.ts';

export interface LoneCall {
  /** As it stands before it is made. */
  execution: Execution;
  run: (signal: AbortSignal, onProgress?: OnEdgeProgress) => Promise<Execution>;
}

export interface LoneCallInput {
  performance: EdgePerformance;
  /** The result as the tool promises it, or said to be otherwise. */
  finish: (execution: Execution) => Execution;
  idempotency: Idempotency | null;
}

export async function loneCall(
  exchange: Exchange<'tenant'>,
  { performance, finish, idempotency }: LoneCallInput,
): Promise<LoneCall> {
  const { configuration, principal } = exchange;
  const { tenant } = principal;
  // The id of a session that nothing was made for: the answer is the same as of any other call.
  const newest = await newSessionId(configuration.tagKey, tenant);
  if (idempotency !== null) {
    const sessionId = await reservedId(exchange, idempotency, newest);
    return keyedCall(exchange, { performance, finish, sessionId });
  }
  const sessionId = newest;
  const ids = { sessionId, executionId: newId('exe') };
  const { execution, made } = await performance.begun(ids);
  const place = { tenant, sessionId, seq: 1, previousSha256: FIRST_PREVIOUS_SHA256 };
  return {
    execution,
    run: async (signal, onProgress) => {
      const ended = finish(await performance.run(ids, signal, onProgress));
      const said = receiptFacts(ended, made);
      if (said === undefined) return ended;
      const { envelope } = await signEdgeReceipt(configuration, place, said);
      return { ...ended, receipt: envelope };
    },
  };
}

/** One that was made before is not made again: its end is waited for. */
async function keyedCall(
  { env, principal }: Exchange<'tenant'>,
  { performance, finish, sessionId }: Omit<LoneCallInput, 'idempotency'> & { sessionId: string },
): Promise<LoneCall> {
  const place = { tenant: principal.tenant, sessionId };
  const kept = keyedCalls(env, place);
  const ids = { sessionId, executionId: newId('exe') };
  const call = { ...(await performance.begun(ids)), timeoutMs: performance.timeoutMs };
  const former = unwrap(await kept((stub) => stub.begin(place, call), SAFE));
  if (former !== null) {
    const ended = async () => unwrap(await kept((stub) => stub.ended(), SAFE));
    return { execution: former, run: former.status === 'running' ? ended : async () => former };
  }
  return {
    execution: call.execution,
    run: async (signal, onProgress) => {
      const ended = finish(await performance.run(ids, signal, onProgress));
      // The answer is given also where it could not be kept: then a repeated call reads as unknown, and has no receipt.
      const told = await kept((stub) => stub.end(ended), SAFE).catch(() => undefined);
      return { ...ended, receipt: told?.ok === true ? told.value : null };
    },
  };
}

function receiptFacts(execution: Execution, made: MadeCall) {
  const { execution_id, tool_name: tool, status, finished_at } = execution;
  if (!isTerminal(status) || finished_at === null) return undefined;
  const result = givenText(givenBy(execution));
  const about = { execution_id, parent: null, tool, performed_by: 'edge' as const, status };
  const facts = edgeReceiptFacts(
    { ...about, made, finishedAtMs: Date.parse(finished_at), result },
    { epoch: 1, host_chain: { seq: 0, sha256: FIRST_PREVIOUS_SHA256 } },
  );
  return { facts, result };
}
