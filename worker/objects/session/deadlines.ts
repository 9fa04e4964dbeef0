/**
 * Deadlines of what the host was sent. The host's own comes first; this one is for a host that does not answer. Timers
 * serve while the object is in memory, the alarm after that.
 */
import { HOST_ANSWER_GRACE_MS } from '../../../shared/limits.ts';
import type { ExecutionRecord } from './records.ts';

/**
 * With the link down the end may be on its way: an execution stays open this much longer, though a caller that waits is
 * answered at the deadline. Within the bound for every end.
 */
const LINK_DOWN_GRACE_MS = 40_000;

export interface DeadlinesPort {
  /** Whether the end may still be on its way, because the link is down and the sandbox may live. */
  mayHearLater(): boolean;
  /** The caller waited long enough. */
  answer(record: ExecutionRecord): void;
  /** The end was not seen. */
  giveUp(record: ExecutionRecord): void;
}

export class Deadlines {
  readonly #port: DeadlinesPort;
  readonly #timers = new Map<ExecutionRecord, ReturnType<typeof setTimeout>>();

  constructor(port: DeadlinesPort) {
    this.#port = port;
  }

  /** When an execution must have ended at the latest; null while it waits to be sent. */
  lastMoment(record: ExecutionRecord): number | null {
    return record.deadlineAtMs === null ? null : record.deadlineAtMs + LINK_DOWN_GRACE_MS;
  }

  arm(record: ExecutionRecord): void {
    if (record.deadlineAtMs !== null) this.#set(record, record.deadlineAtMs);
  }

  disarm(record: ExecutionRecord): void {
    clearTimeout(this.#timers.get(record) ?? null);
    this.#timers.delete(record);
  }

  /** A host that is back says what it knows at once: it gets a moment for that, also past the deadline. */
  linkUp(records: readonly ExecutionRecord[], nowMs: number): void {
    for (const record of records) {
      const lastMomentMs = this.lastMoment(record);
      if (record.deadlineAtMs === null || lastMomentMs === null) continue;
      const atMs = Math.max(record.deadlineAtMs, nowMs + HOST_ANSWER_GRACE_MS);
      this.#set(record, Math.min(atMs, lastMomentMs));
    }
  }

  /** No more can come of these: they get only the moment that an answer under way takes. */
  shorten(records: readonly ExecutionRecord[], nowMs: number): void {
    for (const record of records) {
      if (record.deadlineAtMs === null) continue;
      this.#set(record, Math.min(record.deadlineAtMs, nowMs + HOST_ANSWER_GRACE_MS));
    }
  }

  #set(record: ExecutionRecord, atMs: number): void {
    this.disarm(record);
    this.#timers.set(record, setTimeout(() => this.#fire(record), Math.max(0, atMs - Date.now())));
  }

  #fire(record: ExecutionRecord): void {
    this.#timers.delete(record);
    const lastMomentMs = this.lastMoment(record) ?? 0;
    this.#port.answer(record);
    if (this.#port.mayHearLater() && Date.now() < lastMomentMs) this.#set(record, lastMomentMs);
    else this.#port.giveUp(record);
  }
}
