/**
 * The calls of a session that run at the edge. Each is written before it is made, so a repeated one with the same key
 * never runs twice, and one whose end was not seen says so.
 */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { TERMINAL_GRACE_MS } from '../../../../shared/limits.ts';
import type { Idempotency } from '../../../middleware/idempotency.ts';
import { type EdgeCallRow, EdgeCallStore } from './store.ts';

const MAX_CALLS = 500;
/** A larger result is answered once and not kept: then only how it ended is. */
const MAX_KEPT_CHARACTERS = 256 * 1024;

export interface EdgeCall {
  execution: Execution;
  idempotency: Idempotency | null;
  timeoutMs: number;
}

export class EdgeCalls {
  readonly #store: EdgeCallStore;

  constructor(storage: DurableObjectStorage) {
    this.#store = new EdgeCallStore(storage);
  }

  /** Null where it may run; otherwise what became of the first one. */
  begin({ execution, idempotency, timeoutMs }: EdgeCall, nowMs: number): Outcome<Execution | null> {
    const known = idempotency === null ? undefined : this.#store.byKey(idempotency.key);
    if (known !== undefined) return this.#repeated(known, idempotency, nowMs);
    this.#store.insert({
      execution,
      idempotencyKey: idempotency?.key ?? null,
      fingerprint: idempotency?.fingerprint ?? null,
      deadlineAtMs: nowMs + timeoutMs,
    });
    this.#store.keep(MAX_CALLS);
    return success(null);
  }

  #repeated(known: EdgeCallRow, idempotency: Idempotency | null, nowMs: number): Outcome<Execution> {
    if (known.fingerprint !== idempotency?.fingerprint) {
      return failure('idempotency_conflict', 'the key was used for another request');
    }
    const execution = seen(known, nowMs);
    return execution.status === 'running'
      ? failure('idempotency_in_progress', 'the first call with this key has not ended', { retry_after_s: 1 })
      : success(execution);
  }

  end(execution: Execution): void {
    const isLarge = JSON.stringify(execution).length > MAX_KEPT_CHARACTERS;
    const kept = { ...execution, stdout: '', structured: null, results: [], truncated: true };
    this.#store.update(isLarge ? kept : execution);
  }

  find(executionId: string, nowMs: number): Execution | undefined {
    const known = this.#store.byId(executionId);
    return known === undefined ? undefined : seen(known, nowMs);
  }
}

/** Whoever made the request is gone without a word: it may have had its effect. */
function seen({ execution, deadlineAtMs }: EdgeCallRow, nowMs: number): Execution {
  if (execution.status !== 'running' || nowMs < deadlineAtMs + TERMINAL_GRACE_MS) return execution;
  const finishedAt = new Date(deadlineAtMs + TERMINAL_GRACE_MS).toISOString();
  return { ...execution, status: 'unknown', reason: 'end_not_seen', finished_at: finishedAt };
}
