/**
 * The calls of a session that run at the edge. Each is written before it is made, so a repeated one with the same key
 * never runs twice, and one whose end was not seen says so.
 */
import type { Envelope } from '../../../../shared/dsse.ts';
import { utf8 } from '../../../../shared/encoding.ts';
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Execution } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import { MAX_KEYED_EXECUTIONS, TERMINAL_GRACE_MS } from '../../../../shared/limits.ts';
import type { Idempotency } from '../../../middleware/idempotency.ts';
import type { EdgeProgress } from '../../../tools/edge-execution.ts';
import { givenBy, givenText } from '../../../tools/given.ts';
import { ChangeWaits } from '../../change-waits.ts';
import type { EdgeReceipts } from '../edge-receipts/edge-receipts.ts';
import { digestOf, type EndedEdgeCall } from '../edge-receipts/receipt.ts';
import { KEYS_LIVE_MS } from '../retention/retention.ts';
import type { KeptSince } from '../retention/retention-sweep.ts';
import type { EdgeCall } from './edge-call.ts';
import { NewestProgress, type ToldProgress } from './newest-progress.ts';
import { type EdgeCallRow, EdgeCallStore } from './store.ts';

const MAX_CALLS = 500;
/** Pruned in batches, so that most calls cost nothing here. */
const BATCH = 16;
/** An alarm lets no more go at once. */
const EXPIRED_AT_ONCE = 100;
/** A larger result is answered once and not kept: then only how it ended is. */
const MAX_KEPT_CHARACTERS = 256 * 1024;
/** What all of them gave, together; beyond it that of the oldest goes. */
const MAX_CONTENT_BYTES = 128 * 1024 * 1024;

/** What belongs to the same write. */
export interface EdgeCallsPort {
  began(execution: Execution): void;
  ended(execution: Execution): void;
}

export class EdgeCalls {
  readonly #store: EdgeCallStore;
  readonly #receipts: EdgeReceipts;
  readonly #waits = new ChangeWaits();
  readonly #progress = new NewestProgress();
  readonly #port: EdgeCallsPort;
  /** When the end of those that run must be seen at the latest, by execution. */
  readonly #overdueAtMs: Map<string, number>;
  #contentBytes: number;

  constructor(storage: DurableObjectStorage, receipts: EdgeReceipts, port: EdgeCallsPort) {
    this.#store = new EdgeCallStore(storage);
    this.#receipts = receipts;
    this.#port = port;
    this.#contentBytes = this.#store.contentBytes();
    const running = this.#store.running();
    this.#overdueAtMs = new Map(running.map((row) => [row.executionId, overdueAt(row)]));
  }

  /** Bytes of what they gave that are kept. */
  get contentBytes(): number {
    return this.#contentBytes;
  }

  /**
   * Null where it may run; otherwise what became of the first one. `afterN`: the session's last execution. Whoever does not
   * wait for the end (`isDetached`) is given a first one that runs, as it stands.
   */
  begin(
    { execution, made, idempotency, timeoutMs }: EdgeCall,
    { afterN, nowMs, isDetached }: { afterN: number; nowMs: number; isDetached: boolean },
  ): Outcome<Execution | null> {
    const known = idempotency === null ? undefined : this.#store.byKey(idempotency.key);
    if (known !== undefined) return this.#repeated(known, { idempotency, nowMs, isDetached });
    const deadlineAtMs = nowMs + timeoutMs;
    const n = this.#store.insert({
      execution,
      made,
      afterN,
      idempotencyKey: idempotency?.key ?? null,
      fingerprint: idempotency?.fingerprint ?? null,
      deadlineAtMs,
    });
    this.#overdueAtMs.set(execution.execution_id, overdueAt({ deadlineAtMs }));
    if (n > MAX_CALLS && n % BATCH === 0) this.#prune(nowMs);
    this.#port.began(execution);
    return success(null);
  }

  /** What runs stays, and what a retry may still ask for by its key: it would run a second time otherwise. */
  #prune(nowMs: number): void {
    this.#store.deleteUnkeyedBeyond(MAX_CALLS, nowMs - KEYS_LIVE_MS);
    this.#store.deleteBeyond(MAX_CALLS + MAX_KEYED_EXECUTIONS);
    this.#contentBytes = this.#store.contentBytes();
  }

  #repeated(
    known: EdgeCallRow,
    {
      idempotency,
      nowMs,
      isDetached,
    }: { idempotency: Idempotency | null; nowMs: number; isDetached: boolean },
  ): Outcome<Execution> {
    if (known.fingerprint !== idempotency?.fingerprint) {
      return failure('idempotency_conflict', 'the key was used for another request');
    }
    const execution = this.#seen(known, nowMs);
    return execution.status === 'running' && !isDetached
      ? failure('idempotency_in_progress', 'the first call with this key has not ended', { retry_after_s: 1 })
      : success(execution);
  }

  /** Gives the receipt; null for one that does not run any more, as far as anybody was told. */
  async end(execution: Execution): Promise<Envelope | null> {
    const result = await digestOf(givenText(givenBy(execution)));
    const known = this.#store.byId(execution.execution_id);
    if (known === undefined || seen(known, Date.now()).status !== 'running') return null;
    this.#ended(known, execution, result);
    return (await this.#receipts.of(execution.execution_id)) ?? null;
  }

  /** From the alarm: whoever made these requests is gone without a word. */
  check(nowMs: number): void {
    for (const [executionId, atMs] of this.#overdueAtMs) {
      if (nowMs < atMs) continue;
      const known = this.#store.byId(executionId);
      if (known === undefined) this.#overdueAtMs.delete(executionId);
      else this.#giveUp(known, nowMs);
    }
  }

  /** The session is over, and what it keeps is about to go: of those that run no end will be seen here. */
  abandon(nowMs: number): void {
    for (const executionId of this.#overdueAtMs.keys()) {
      const known = this.#store.byId(executionId);
      if (known !== undefined) this.#giveUp(known, nowMs);
    }
  }

  #giveUp(known: EdgeCallRow, nowMs: number): void {
    const execution = unseen(known.execution, Math.min(nowMs, overdueAt(known)));
    this.#ended(known, execution, givenText(givenBy(execution)));
  }

  get areRunning(): boolean {
    return this.#overdueAtMs.size > 0;
  }

  nextMoment(): number | null {
    return this.#overdueAtMs.size === 0 ? null : Math.min(...this.#overdueAtMs.values());
  }

  /** In one write: its end, what its receipt will say, and the event. */
  #ended({ made }: EdgeCallRow, execution: Execution, result: EndedEdgeCall['result']): void {
    const { execution_id, tool_name: tool, finished_at, status } = execution;
    this.#write(execution);
    this.#overdueAtMs.delete(execution_id);
    if (made !== null && isTerminal(status) && finished_at !== null) {
      const finishedAtMs = Date.parse(finished_at);
      const about = { execution_id, parent: null, tool, performed_by: 'edge' as const, status };
      this.#receipts.add({ ...about, made, finishedAtMs, result });
    }
    this.#port.ended(execution);
    this.#progress.end(execution_id);
    this.#waits.changed(execution_id);
  }

  progressed(executionId: string, progress: EdgeProgress): void {
    if (!this.#overdueAtMs.has(executionId)) return;
    this.#progress.say(executionId, progress);
    this.#waits.changed(executionId);
  }

  progressOf(executionId: string): ToldProgress | null {
    return this.#progress.of(executionId);
  }

  /** Resolves when one that runs has ended or something was said of it, or after that time. */
  wait(executionId: string, waitMs: number): Promise<void> {
    return this.#waits.wait(executionId, waitMs);
  }

  #write(execution: Execution): void {
    const text = JSON.stringify(execution);
    const bare = withoutContent(execution);
    const isLarge = text.length > MAX_KEPT_CHARACTERS;
    const contentBytes = isLarge ? 0 : utf8(text).length - utf8(JSON.stringify(bare)).length;
    this.#store.ended(isLarge ? { ...bare, truncated: true } : execution, {
      endedAtMs: Date.now(),
      contentBytes,
    });
    this.#contentBytes += contentBytes;
    while (this.#contentBytes > MAX_CONTENT_BYTES) if (!this.#dropOldestContent()) return;
  }

  #dropOldestContent(): boolean {
    const oldest = this.#store.oldestWithContent();
    if (oldest === undefined) return false;
    this.#store.dropContent(oldest.n, { ...withoutContent(oldest.execution), truncated: true });
    this.#contentBytes -= oldest.contentBytes;
    return true;
  }

  /** Lets go a few of those that ended before; true where there may be more. The caller has a transaction open. */
  expire({ executionsMs, outputsMs }: KeptSince): boolean {
    const over = executionsMs === null ? 0 : this.#store.deleteEndedBefore(executionsMs, EXPIRED_AT_ONCE);
    const read = outputsMs === null ? [] : this.#store.unexpiredBefore(outputsMs, EXPIRED_AT_ONCE);
    for (const { n, execution } of read) this.#store.expire(n, expired(execution));
    if (over + read.length > 0) this.#contentBytes = this.#store.contentBytes();
    return Math.max(over, read.length) >= EXPIRED_AT_ONCE;
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
      return { afterN: row.afterN, n: row.n, view: withoutContent(this.#seen(row, nowMs)) };
    });
  }

  #seen(row: EdgeCallRow, nowMs: number): Execution {
    const execution = seen(row, nowMs);
    return { ...execution, receipt: this.#receipts.now(execution.execution_id) };
  }
}

function expired(execution: Execution): Execution {
  const { error, structured, results } = execution;
  return {
    ...withoutContent(execution),
    truncated: execution.truncated || structured !== null || results.length > 0,
    error: error === null ? null : { ...error, message: '', traceback: '' },
    content_expired: true,
  };
}

function withoutContent(execution: Execution): Execution {
  return { ...execution, stdout: '', structured: null, results: [] };
}

function seen({ execution, deadlineAtMs }: EdgeCallRow, nowMs: number): Execution {
  const atMs = overdueAt({ deadlineAtMs });
  return execution.status !== 'running' || nowMs < atMs ? execution : unseen(execution, atMs);
}

/** Whoever made the request is gone without a word: it may have had its effect. */
function unseen(execution: Execution, atMs: number): Execution {
  const finishedAt = new Date(atMs).toISOString();
  return { ...execution, status: 'unknown', reason: 'end_not_seen', finished_at: finishedAt };
}

function overdueAt({ deadlineAtMs }: Pick<EdgeCallRow, 'deadlineAtMs'>): number {
  return deadlineAtMs + TERMINAL_GRACE_MS;
}
