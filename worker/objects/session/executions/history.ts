/** Keeps the history of a session bounded. Receipts stay: the chain would break without them. */
import { MAX_EXECUTION_HISTORY, MAX_KEYED_EXECUTIONS } from '../../../../shared/limits.ts';
import { KEYS_LIVE_MS } from '../retention/retention.ts';
import type { KeptSince } from '../retention/retention-sweep.ts';
import type { ExecutionRecord } from '../rows/records.ts';
import type { SessionStore } from '../rows/store.ts';

/** Output and results of all executions together; beyond it those of the oldest go. */
const MAX_CONTENT_BYTES = 256 * 1024 * 1024;
/** Pruned in batches, so that most ends cost nothing here. */
const BATCH = 64;
/** An alarm lets no more go at once: each may have megabytes in rows. */
const EXPIRED_AT_ONCE = 32;

export class History {
  readonly #store: SessionStore;
  #contentBytes: number;

  constructor(store: SessionStore) {
    this.#store = store;
    this.#contentBytes = store.contentBytes();
  }

  get contentBytes(): number {
    return this.#contentBytes;
  }

  ended(record: ExecutionRecord): void {
    this.#contentBytes += record.contentBytes;
    if (record.n > MAX_EXECUTION_HISTORY && record.n % BATCH === 0) this.#pruneRows(Date.now());
    while (this.#contentBytes > MAX_CONTENT_BYTES) if (!this.#pruneContent()) return;
  }

  /** Lets go a few of those that ended before; true where there may be more. */
  expire({ executionsMs, outputsMs }: KeptSince): boolean {
    const over = executionsMs === null ? [] : this.#store.endedBefore(executionsMs, EXPIRED_AT_ONCE);
    const newest = over.at(-1);
    if (newest !== undefined) this.#store.keepNumber(newest);
    for (const n of over) this.#store.deleteExecution(n);
    const read = outputsMs === null ? [] : this.#store.unexpiredBefore(outputsMs, EXPIRED_AT_ONCE);
    for (const n of read) this.#store.expireExecution(n);
    if (over.length + read.length > 0) this.#contentBytes = this.#store.contentBytes();
    return Math.max(over.length, read.length) === EXPIRED_AT_ONCE;
  }

  /** More is kept of an execution that has ended. */
  grew(bytes: number): void {
    this.#contentBytes += bytes;
  }

  /** What a retry may still ask for by its key stays: it would run a second time otherwise. */
  #pruneRows(nowMs: number): void {
    const beyond = this.#store.unkeyedBeyond(MAX_EXECUTION_HISTORY, nowMs - KEYS_LIVE_MS);
    for (const { n } of beyond) this.#store.deleteExecution(n);
    const excess = this.#store.executionCount() - MAX_EXECUTION_HISTORY - MAX_KEYED_EXECUTIONS;
    const oldest = excess > 0 ? this.#store.oldestEnded(excess) : [];
    for (const { n } of oldest) this.#store.deleteExecution(n);
    if (beyond.length + oldest.length > 0) this.#contentBytes = this.#store.contentBytes();
  }

  #pruneContent(): boolean {
    const oldest = this.#store.endedWithContent(BATCH);
    for (const { n, contentBytes } of oldest) {
      if (this.#contentBytes <= MAX_CONTENT_BYTES) break;
      this.#store.deleteContent(n);
      this.#store.updateExecution(n, { contentBytes: 0, truncated: true });
      this.#contentBytes -= contentBytes;
    }
    return oldest.length > 0;
  }
}
