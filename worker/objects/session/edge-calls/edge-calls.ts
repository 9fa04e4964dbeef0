/**
 * The calls of a session that run at the edge. Each is written before it is made, so a repeated one with the same key
 * never runs twice, and one whose end was not seen says so.
 */
import type { Envelope } from '../../../../shared/dsse.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { TERMINAL_GRACE_MS } from '../../../../shared/limits.ts';
import type { Idempotency } from '../../../middleware/idempotency.ts';
import { givenBy, givenText } from '../../../tools/given.ts';
import { ChangeWaits } from '../../change-waits.ts';
import { digestOf, type EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import type { EdgeCall } from './edge-call.ts';
import { type EdgeCallRow, EdgeCallStore } from './store.ts';

const MAX_CALLS = 500;
/** A larger result is answered once and not kept: then only how it ended is. */
const MAX_KEPT_CHARACTERS = 256 * 1024;

/** What belongs to the same write. */
export interface EdgeCallsPort {
  began(execution: Execution): void;
  ended(execution: Execution): void;
}

export class EdgeCalls {
  readonly #store: EdgeCallStore;
  readonly #receipts: EdgeReceipts;
  readonly #waits = new ChangeWaits();
  readonly #port: EdgeCallsPort;

  /** The session's own tables are there. */
  constructor(storage: DurableObjectStorage, receipts: EdgeReceipts, port: EdgeCallsPort) {
    this.#store = new EdgeCallStore(storage);
    this.#receipts = receipts;
    this.#port = port;
  }

  /** Null where it may run; otherwise what became of the first one. `afterN`: the session's last execution. */
  begin(
    { execution, made, idempotency, timeoutMs }: EdgeCall,
    { afterN, nowMs }: { afterN: number; nowMs: number },
  ): Outcome<Execution | null> {
    const known = idempotency === null ? undefined : this.#store.byKey(idempotency.key);
    if (known !== undefined) return this.#repeated(known, idempotency, nowMs);
    this.#store.insert({
      execution,
      made,
      afterN,
      idempotencyKey: idempotency?.key ?? null,
      fingerprint: idempotency?.fingerprint ?? null,
      deadlineAtMs: nowMs + timeoutMs,
    });
    this.#store.keep(MAX_CALLS);
    this.#port.began(execution);
    return success(null);
  }

  #repeated(known: EdgeCallRow, idempotency: Idempotency | null, nowMs: number): Outcome<Execution> {
    if (known.fingerprint !== idempotency?.fingerprint) {
      return failure('idempotency_conflict', 'the key was used for another request');
    }
    const execution = this.#seen(known, nowMs);
    return execution.status === 'running'
      ? failure('idempotency_in_progress', 'the first call with this key has not ended', { retry_after_s: 1 })
      : success(execution);
  }

  /** Gives the receipt; null for one that is not known here any more. */
  async end(execution: Execution): Promise<Envelope | null> {
    const { execution_id, tool_name: tool, finished_at, status } = execution;
    const result = await digestOf(givenText(givenBy(execution)));
    const known = this.#store.byId(execution_id);
    this.#write(execution);
    if (known?.execution.status === 'running') this.#port.ended(execution);
    if (known?.made && isTerminal(status) && finished_at !== null) {
      const { made } = known;
      const finishedAtMs = Date.parse(finished_at);
      const about = { execution_id, parent: null, tool, performed_by: 'edge' as const, status };
      this.#receipts.add({ ...about, made, finishedAtMs, result });
    }
    const receipt = (await this.#receipts.of(execution_id)) ?? null;
    this.#waits.changed(execution_id);
    return receipt;
  }

  /** Resolves when one that runs has ended, or after that time. */
  wait(executionId: string, waitMs: number): Promise<void> {
    return this.#waits.wait(executionId, waitMs);
  }

  #write(execution: Execution): void {
    const isLarge = JSON.stringify(execution).length > MAX_KEPT_CHARACTERS;
    const kept = { ...execution, stdout: '', structured: null, results: [], truncated: true };
    this.#store.update(isLarge ? kept : execution);
  }

  find(executionId: string, nowMs: number): Execution | undefined {
    const known = this.#store.byId(executionId);
    return known === undefined ? undefined : this.#seen(known, nowMs);
  }

  /** Newest first, without what they gave; `before` as places of the session's list have it. */
  summariesBefore(
    before: { afterN: number; n: number },
    { limit, nowMs }: { limit: number; nowMs: number },
  ): { afterN: number; n: number; view: Execution }[] {
    return this.#store.before(before, limit).map((row) => {
      const view = { ...this.#seen(row, nowMs), stdout: '', structured: null, results: [] };
      return { afterN: row.afterN, n: row.n, view };
    });
  }

  #seen(row: EdgeCallRow, nowMs: number): Execution {
    const execution = seen(row, nowMs);
    return { ...execution, receipt: this.#receipts.now(execution.execution_id) };
  }
}

/** Whoever made the request is gone without a word: it may have had its effect. */
function seen({ execution, deadlineAtMs }: EdgeCallRow, nowMs: number): Execution {
  if (execution.status !== 'running' || nowMs < deadlineAtMs + TERMINAL_GRACE_MS) return execution;
  const finishedAt = new Date(deadlineAtMs + TERMINAL_GRACE_MS).toISOString();
  return { ...execution, status: 'unknown', reason: 'end_not_seen', finished_at: finishedAt };
}
