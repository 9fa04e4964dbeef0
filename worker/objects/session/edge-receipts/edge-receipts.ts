/**
 * Receipts of the calls of this session that no host ran. What one says is written with the end of its call; it is signed
 * a moment later, in the order of the ends, also by an object that starts anew in between.
 */
import type { Envelope } from '../../../../shared/dsse.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../../../shared/receipt.ts';
import type { Configuration } from '../../../configuration.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { SessionRecord } from '../rows/records.ts';
import { type EndedEdgeCall, edgeReceiptFacts, signEdgeReceipt } from './receipt.ts';
import { EdgeReceiptStore, type UnsignedReceipt } from './store.ts';

/** Whose receipts they are, and where the chain of its hosts stands. */
export interface EdgeReceiptChain extends Pick<SessionRecord, 'epoch' | 'chainSeq' | 'chainSha256'> {
  facts: Pick<SessionRecord['facts'], 'tenant' | 'sessionId'>;
}

export class EdgeReceipts {
  readonly #store: EdgeReceiptStore;
  readonly #chain: () => EdgeReceiptChain;
  readonly #configuration: Configuration;
  #signing: Promise<void> | undefined;

  constructor(storage: DurableObjectStorage, chain: () => EdgeReceiptChain, configuration: Configuration) {
    this.#store = new EdgeReceiptStore(storage);
    this.#chain = chain;
    this.#configuration = configuration;
  }

  /** In the same turn as the end of the call is written. */
  add(call: EndedEdgeCall): void {
    const { epoch, chainSeq, chainSha256 } = this.#chain();
    const sha256 = chainSeq === 0 ? FIRST_PREVIOUS_SHA256 : chainSha256;
    const facts = edgeReceiptFacts(call, { epoch, host_chain: { seq: chainSeq, sha256 } });
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
        this.#store.signed(next.seq, await this.#signOne(next));
      }
    } catch (error: unknown) {
      logWarning('edge_receipt_not_signed', { detail: messageOf(error) });
    }
  }

  #signOne({ seq, ...unsigned }: UnsignedReceipt) {
    const { tenant, sessionId } = this.#chain().facts;
    const previousSha256 = this.#store.sha256(seq - 1) ?? FIRST_PREVIOUS_SHA256;
    return signEdgeReceipt(this.#configuration, { tenant, sessionId, seq, previousSha256 }, unsigned);
  }
}
