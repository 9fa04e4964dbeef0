/** Receipts of a session, as they are asked for. */
import type { Envelope } from '../../../../shared/dsse.ts';
import { keyIdOf } from '../../../../shared/ed25519.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import type { Configuration } from '../../../configuration.ts';
import type { Caller } from '../../caller.ts';
import { find } from '../executions/calls.ts';
import { getExecution } from '../executions/found.ts';
import type { ReceiptExport, ReceiptPage } from '../port.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';

/** Of an execution that a host ran, or of a call that none did. */
export async function receiptOf(
  runtime: SessionRuntime,
  caller: Caller,
  executionId: string,
): Promise<Outcome<Envelope>> {
  const found = find(runtime, caller, executionId);
  if (found.ok) return ofHost(runtime, found.value);
  if (runtime.row.ownedBy(caller) === undefined) return found;
  const envelope = await runtime.edgeReceipts.of(executionId);
  if (envelope !== undefined) return success(envelope);
  const execution = getExecution(runtime, caller, { executionId });
  if (!execution.ok) return execution;
  return isTerminal(execution.value.status)
    ? failure('not_found', `there is no receipt: ${whyNone(execution.value.status)}`)
    : failure('receipt_pending', 'the execution has not ended');
}

/** Of a call that no host runs. */
function whyNone(status: Execution['status']): string {
  if (status === 'refused') return 'the call was refused; nothing was done for it';
  if (status === 'cancelled') return 'its program ended before anybody answered the call';
  return 'the end of the call was not seen, or it was made by a former version of the edge';
}

function ofHost(runtime: SessionRuntime, record: ExecutionRecord): Outcome<Envelope> {
  const envelope = record.receiptSeq === null ? undefined : runtime.store.receipt(record.receiptSeq);
  if (envelope !== undefined) return success(envelope);
  return isTerminal(record.status)
    ? failure('not_found', `there is no receipt: ${whyNoReceipt(record)}`)
    : failure('receipt_pending', 'the execution has not ended');
}

/** A host signs what it ran to its end. Of everything else the edge says itself what it knows. */
function whyNoReceipt({ status, reason }: ExecutionRecord): string {
  const because = reason === null ? '' : ` (${reason})`;
  switch (status) {
    case 'cancelled':
      return `the call was cancelled before it was sent to a host${because}; nothing ran`;
    case 'refused':
      return `the host refused the call${because}; nothing ran`;
    case 'unknown':
      return `the end of the call was not seen, or what the host signed of it was not accepted${because}`;
    default:
      return `the session ended before its host had signed the end of the call${because}`;
  }
}

export async function receiptExport(
  runtime: SessionRuntime,
  configuration: Configuration,
  { after, edge_after: edgeAfter, limit }: ReceiptPage,
): Promise<Outcome<ReceiptExport>> {
  const { facts, hostKeyX, chainSeq } = runtime.row.record;
  const hosts = runtime.store.formerHosts();
  if (hostKeyX !== null) hosts.push({ hostId: facts.hostId, keyX: hostKeyX });
  const receipts = runtime.store.receipts(after, limit);
  const last = after + receipts.length;
  const ofEdge = await runtime.edgeReceipts.page(edgeAfter, limit + 1);
  return success({
    session_id: facts.sessionId,
    receipts,
    edge_receipts: ofEdge.slice(0, limit),
    next_after: last < chainSeq && receipts.length > 0 ? last : null,
    next_edge_after: ofEdge.length > limit ? edgeAfter + limit : null,
    keys: {
      edge: configuration.keySet.receipt_keys,
      hosts: await Promise.all(hosts.map(({ hostId, keyX }) => hostKey(hostId, keyX))),
    },
  });
}

async function hostKey(hostId: string, x: string): Promise<ReceiptExport['keys']['hosts'][number]> {
  const jwk = { kty: 'OKP', crv: 'Ed25519', x } as const;
  return {
    host_id: hostId,
    kid: await keyIdOf(jwk),
    jwk,
    not_before: null,
    not_after: null,
    revoked_at: null,
  };
}
