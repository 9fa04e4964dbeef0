/**
 * Receipts of the calls of this session that no host ran. What one says is written with the end of its call; it is signed
 * a moment later, in the order of the ends, also by an object that starts anew in between.
 */
import { sha256Hex } from '../../../../shared/digest.ts';
import { type Envelope, signEnvelope } from '../../../../shared/dsse.ts';
import { EDGE_RECEIPT_PAYLOAD_TYPE, type EdgeReceipt } from '../../../../shared/edge-receipt.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { newId } from '../../../../shared/ids.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../../../shared/receipt.ts';
import type { Configuration } from '../../../configuration.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { SessionRow } from '../session-row.ts';
import type { MadeCall } from './made.ts';
import { type EdgeReceiptFacts, EdgeReceiptStore, type UnsignedReceipt } from './store.ts';

/** What whoever ends a call says of it. Times are milliseconds since the epoch. */
export interface EndedEdgeCall
  extends Pick<EdgeReceiptFacts, 'execution_id' | 'parent' | 'tool' | 'performed_by' | 'status'> {
  made: MadeCall;
  finishedAtMs: number;
  /** JSON of what it gave, or the digest of it. */
  result: string | EdgeReceipt['result'];
}

export class EdgeReceipts {
  readonly #store: EdgeReceiptStore;
  readonly #row: SessionRow;
  readonly #configuration: Configuration;
  #signing: Promise<void> | undefined;

  constructor(storage: DurableObjectStorage, row: SessionRow, configuration: Configuration) {
    this.#store = new EdgeReceiptStore(storage);
    this.#row = row;
    this.#configuration = configuration;
  }

  /** In the same turn as the end of the call is written. */
  add({ execution_id, parent, tool, performed_by, status, ...call }: EndedEdgeCall): void {
    const { toolVersion, argsSha256, timeoutMs, startedAtMs } = call.made;
    const { epoch, chainSeq, chainSha256 } = this.#row.record;
    const facts: EdgeReceiptFacts = {
      receipt_id: newId('rct'),
      execution_id,
      parent,
      epoch,
      host_chain: { seq: chainSeq, sha256: chainSeq === 0 ? FIRST_PREVIOUS_SHA256 : chainSha256 },
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
    const text = typeof call.result === 'string' ? call.result : null;
    if (this.#store.insert(facts, text)) void this.signed();
  }

  /** Undefined where the execution has none. */
  async of(executionId: string): Promise<Envelope | undefined> {
    if (this.#store.find(executionId) === null) await this.signed();
    return this.#store.find(executionId) ?? undefined;
  }

  /** What is signed of it at this moment. */
  now(executionId: string): Envelope | null {
    return this.#store.find(executionId) ?? null;
  }

  async page(after: number, limit: number): Promise<Envelope[]> {
    await this.signed();
    return this.#store.page(after, limit);
  }

  /** Settles when all of them are signed. */
  signed(): Promise<void> {
    this.#signing ??= this.#sign().finally(() => {
      this.#signing = undefined;
    });
    return this.#signing;
  }

  async #sign(): Promise<void> {
    try {
      for (let next = this.#store.firstUnsigned(); next !== undefined; next = this.#store.firstUnsigned()) {
        const receipt = await this.#receiptOf(next);
        const payload = utf8(JSON.stringify(receipt));
        const envelope = await signEnvelope(EDGE_RECEIPT_PAYLOAD_TYPE, payload, this.#configuration.receipt);
        this.#store.signed(next.seq, { envelope, sha256: await sha256Hex(payload) });
      }
    } catch (error: unknown) {
      logWarning('edge_receipt_not_signed', { detail: messageOf(error) });
    }
  }

  async #receiptOf({ seq, facts, result }: UnsignedReceipt): Promise<EdgeReceipt> {
    const { tenant, sessionId } = this.#row.record.facts;
    const { origin, receipt: signer } = this.#configuration;
    return {
      v: 1,
      issuer: origin,
      ...facts,
      tenant_sha256: await sha256Hex(tenant),
      session_id: sessionId,
      seq,
      prev_sha256: this.#store.sha256(seq - 1) ?? FIRST_PREVIOUS_SHA256,
      result: facts.result ?? (await digestOf(result ?? '')),
      key_id: signer.keyId,
    };
  }
}

export async function digestOf(text: string): Promise<EdgeReceipt['result']> {
  return { sha256: await sha256Hex(text), bytes: utf8(text).length };
}
