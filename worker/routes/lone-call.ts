/**
 * A call that the gateway makes in no session: its answer has a receipt that is a chain of one. Nothing of it is kept, so
 * no repeated call could be given its answer, and a key that asks for that is refused.
 */
import type { Execution } from '../../shared/execution.ts';
import { newId, newSessionId } from '../../shared/ids.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../shared/receipt.ts';
import { invalid } from '../middleware/body.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import type { MadeCall } from '../objects/session/edge-receipts/made.ts';
import { edgeReceiptFacts, signEdgeReceipt } from '../objects/session/edge-receipts/receipt.ts';
import type { OnEdgeProgress } from '../tools/edge-execution.ts';
import { givenBy, givenText } from '../tools/given.ts';
import type { EdgePerformance } from '../tools/performance.ts';
import type { Exchange } from './route.ts';

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
  /** Where the caller gave the key. */
  keyPath: string;
}

export async function loneCall(
  { configuration, principal }: Exchange<'tenant'>,
  { performance, finish, idempotency, keyPath }: LoneCallInput,
): Promise<LoneCall> {
  if (idempotency !== null) {
    const expected = 'nothing: the gateway makes this call itself, and once for a key only in a session';
    throw invalid([{ path: keyPath, expected }]);
  }
  const { tenant } = principal;
  // The id of a session that nothing was made for: the answer is the same as of any other call.
  const sessionId = await newSessionId(configuration.tagKey, tenant);
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
