/**
 * Deadlines of what the host was sent. The host's own comes first; this one is for a host that does not answer. A timer
 * keeps the object in memory, so there is one only while a caller waits, who keeps it there anyway; else the alarm serves.
 */
import { HOST_ANSWER_GRACE_MS } from '../../../../shared/limits.ts';
import { lastMoment } from '../alarm/agenda.ts';
import type { ExecutionRecord } from '../rows/records.ts';

export interface DeadlinesPort {
  /** Whether the end may still be on its way, because the link is down and the sandbox may live. */
  mayHearLater(): boolean;
  /** Whether the sandbox is paused: no deadline comes nearer. */
  standsStill(): boolean;
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

  /** Somebody waits for this execution, or it was sent while somebody waits. */
  arm(record: ExecutionRecord): void {
    if (record.deadlineAtMs !== null && !this.#timers.has(record)) this.#set(record, record.deadlineAtMs);
  }

  disarm(record: ExecutionRecord): void {
    clearTimeout(this.#timers.get(record) ?? null);
    this.#timers.delete(record);
  }

  /** From the alarm, for those without a timer. */
  check(records: readonly ExecutionRecord[], nowMs: number): void {
    if (this.#port.standsStill()) return;
    for (const record of records) {
      if (record.deadlineAtMs === null || nowMs < record.deadlineAtMs || this.#timers.has(record)) continue;
      this.#judge(record, nowMs);
    }
  }

  /** A host that is back says what it knows at once: it gets a moment for that, also past the deadline. */
  linkUp(records: readonly ExecutionRecord[], nowMs: number): void {
    const soonMs = nowMs + HOST_ANSWER_GRACE_MS;
    for (const record of records) {
      if (record.deadlineAtMs === null || record.deadlineAtMs > soonMs) continue;
      this.#set(record, Math.min(soonMs, lastMoment(record.deadlineAtMs)));
    }
  }

  /** No more can come of these: they get only the moment that an answer under way takes. */
  shorten(records: readonly ExecutionRecord[], nowMs: number): void {
    for (const record of records) {
      if (record.status !== 'waiting' && record.deadlineAtMs === null) continue;
      const deadlineAtMs = record.deadlineAtMs ?? Number.POSITIVE_INFINITY;
      this.#set(record, Math.min(deadlineAtMs, nowMs + HOST_ANSWER_GRACE_MS));
    }
  }

  #set(record: ExecutionRecord, atMs: number): void {
    this.disarm(record);
    if (this.#port.standsStill()) return;
    const fire = () => {
      this.#timers.delete(record);
      this.#judge(record, Date.now());
    };
    this.#timers.set(record, setTimeout(fire, Math.max(0, atMs - Date.now())));
  }

  #judge(record: ExecutionRecord, nowMs: number): void {
    this.#port.answer(record);
    const isLast = nowMs >= lastMoment(record.deadlineAtMs ?? 0);
    if (isLast || !this.#port.mayHearLater()) this.#port.giveUp(record);
  }
}
