/** What a receipt of the edge says, put together and signed. */
import { sha256Hex } from '../../../../shared/digest.ts';
import { type Envelope, signEnvelope } from '../../../../shared/dsse.ts';
import { EDGE_RECEIPT_PAYLOAD_TYPE, type EdgeReceipt } from '../../../../shared/edge-receipt.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { newId } from '../../../../shared/ids.ts';
import type { Configuration } from '../../../configuration.ts';
import type { MadeCall } from './made.ts';
import type { EdgeReceiptFacts } from './store.ts';

/** What whoever ends a call says of it. Times are milliseconds since the epoch. */
export interface EndedEdgeCall
  extends Pick<EdgeReceiptFacts, 'execution_id' | 'parent' | 'tool' | 'performed_by' | 'status'> {
  made: MadeCall;
  finishedAtMs: number;
  /** JSON of what it gave, or the digest of it. */
  result: string | EdgeReceipt['result'];
}

/** Where its session stood when the call ended. */
export type EdgeReceiptMoment = Pick<EdgeReceiptFacts, 'epoch' | 'host_chain'>;

/** `result` is null where its digest is not known yet. */
export function edgeReceiptFacts(
  { execution_id, parent, tool, performed_by, status, ...call }: EndedEdgeCall,
  { epoch, host_chain }: EdgeReceiptMoment,
): EdgeReceiptFacts {
  const { toolVersion, argsSha256, timeoutMs, startedAtMs } = call.made;
  return {
    receipt_id: newId('rct'),
    execution_id,
    parent,
    epoch,
    host_chain,
    tool,
    tool_version: toolVersion,
    args_sha256: argsSha256,
    performed_by,
    limits: { timeout_ms: timeoutMs },
    status,
    result: typeof call.result === 'string' ? null : call.result,
    usage: { wall_ms: Math.max(0, call.finishedAtMs - startedAtMs) },
    started_at: new Date(startedAtMs).toISOString(),
    finished_at: new Date(call.finishedAtMs).toISOString(),
  };
}

export interface EdgeReceiptPlace {
  tenant: string;
  sessionId: string;
  seq: number;
  previousSha256: string;
}

/** `result`: JSON of what the call gave, where the facts have no digest of it. */
export async function signEdgeReceipt(
  { origin, receipt: signer }: Pick<Configuration, 'origin' | 'receipt'>,
  { tenant, sessionId, seq, previousSha256 }: EdgeReceiptPlace,
  { facts, result }: { facts: EdgeReceiptFacts; result: string | null },
): Promise<{ envelope: Envelope; sha256: string }> {
  const receipt: EdgeReceipt = {
    v: 1,
    issuer: origin,
    ...facts,
    tenant_sha256: await sha256Hex(tenant),
    session_id: sessionId,
    seq,
    prev_sha256: previousSha256,
    result: facts.result ?? (await digestOf(result ?? '')),
    key_id: signer.keyId,
  };
  const payload = utf8(JSON.stringify(receipt));
  const envelope = await signEnvelope(EDGE_RECEIPT_PAYLOAD_TYPE, payload, signer);
  return { envelope, sha256: await sha256Hex(payload) };
}

export async function digestOf(text: string): Promise<EdgeReceipt['result']> {
  return { sha256: await sha256Hex(text), bytes: utf8(text).length };
}
