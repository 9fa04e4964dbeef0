/** What happens in the session, one row each, in the same write as the change that it tells of. */
import type { SealedCallback } from '../../../../shared/callback.ts';
import {
  MAX_EVENT_NAME_CHARACTERS,
  MAX_EVENT_TEXT_CHARACTERS,
  type SessionEvent,
  type SessionEventFacts,
  SessionEventSchema,
} from '../../../../shared/event.ts';
import { newId } from '../../../../shared/ids.ts';
import type { SessionState } from '../../../../shared/lifecycle.ts';
import type { EventsNotice } from '../../../webhooks/message.ts';
import { logWarning } from '../../log.ts';
import type { ExecutionRecord, SessionRecord } from '../rows/records.ts';
import { EventOutbox } from './outbox.ts';
import type { SessionEventStore } from './store.ts';

/** Events that a reader who comes back still finds. */
export const MAX_KEPT_EVENTS = 1_000;
/** That many more are kept where nobody takes them. */
const MAX_PENDING_EVENTS = 10_000;
const TRIM_EVERY = 100;

const TOLD_AS = {
  paused: 'session.paused',
  suspended: 'session.suspended',
  destroyed: 'session.destroyed',
} as const;

type EndedExecution = Extract<SessionEventFacts, { type: 'execution.finished' }>['data'];

export interface SessionEventsPort {
  /** Undefined before the session exists. */
  record(): SessionRecord | undefined;
  send(notice: Pick<EventsNotice, 'labels' | 'events'>): Promise<unknown>;
  inBackground(work: Promise<unknown>): void;
  dueAt(atMs: number): void;
}

export class SessionEvents {
  readonly #store: SessionEventStore;
  readonly #port: SessionEventsPort;
  readonly #outbox: EventOutbox;
  readonly #callbacks: Map<string, SealedCallback>;
  readonly #wakers = new Set<() => void>();
  #webhooksSinceMs: number | null;
  #last: number;

  constructor(store: SessionEventStore, port: SessionEventsPort) {
    this.#store = store;
    this.#port = port;
    this.#last = store.extent().last ?? 0;
    this.#webhooksSinceMs = store.webhooksSinceMs();
    this.#callbacks = new Map(store.callbacks().map(({ executionId, callback }) => [executionId, callback]));
    this.#outbox = new EventOutbox(store, {
      send: (events) => port.send({ labels: port.record()?.facts.labels ?? {}, events }),
      inBackground: (work) => port.inBackground(work),
      dueAt: (atMs) => port.dueAt(atMs),
    });
  }

  get dueAtMs(): number | null {
    return this.#outbox.dueAtMs;
  }

  /** Number of the newest. */
  get last(): number {
    return this.#last;
  }

  /** Number of the oldest that is kept; one more than the newest where none is. */
  get first(): number {
    return this.#store.extent().first ?? this.#last + 1;
  }

  after(n: number, limit: number): SessionEvent[] {
    return this.#store.after(n, limit);
  }

  /** In the write of the change; what comes again with an id that is known is one event. */
  record(
    facts: SessionEventFacts,
    { id, callback = null }: { id?: string; callback?: SealedCallback | null } = {},
  ): void {
    const session = this.#port.record();
    if (session === undefined || (id !== undefined && this.#store.has(id))) return;
    const atMs = Date.now();
    const made = SessionEventSchema.safeParse({
      id: id ?? newId('evt'),
      n: this.#last + 1,
      timestamp: new Date(atMs).toISOString(),
      type: facts.type,
      data: { session_id: session.facts.sessionId, ...facts.data },
    });
    if (!made.success) {
      // The change that it tells of stands all the same.
      logWarning('event_not_told', { type: facts.type, detail: made.error.issues[0]?.path.join('.') ?? '' });
      return;
    }
    const { data: event } = made;
    const isPending = callback !== null || this.#webhooksSinceMs !== null;
    this.#store.insert({ event, atMs, isPending, callback });
    this.#last = event.n;
    if (event.n % TRIM_EVERY === 0) this.#trim();
    if (isPending) this.#outbox.added(1);
    this.#wake();
  }

  #trim(): void {
    this.#store.trim(this.#last - MAX_KEPT_EVENTS);
    this.#outbox.dropped(this.#store.drop(this.#last - MAX_PENDING_EVENTS));
  }

  /** The session is in another state. */
  moved(from: SessionState): void {
    const session = this.#port.record();
    if (session === undefined) return;
    const { state, facts, errorCode, errorDetail } = session;
    if (state === 'creating' || state === 'destroying') return;
    const data = { state, host_id: state === 'suspended' ? null : facts.hostId };
    if (state === 'error') {
      const error = {
        code: errorCode ?? 'unknown',
        detail: clipped(errorDetail ?? '', MAX_EVENT_TEXT_CHARACTERS),
      };
      this.record({ type: 'session.error', data: { ...data, error } });
    } else if (state === 'running') {
      this.record({ type: from === 'creating' ? 'session.created' : 'session.resumed', data });
    } else {
      this.record({ type: TOLD_AS[state], data });
    }
  }

  accepted({ executionId, calledAs, tool }: ExecutionRecord): void {
    this.record({
      type: 'execution.accepted',
      data: { execution_id: executionId, tool_name: calledAs?.name ?? tool },
    });
  }

  /** With what is about to be its row. */
  ended(record: ExecutionRecord): void {
    this.finished({
      execution_id: record.executionId,
      tool_name: record.calledAs?.name ?? record.tool,
      status: record.status,
      exit_code: record.exitCode,
      signal: record.signal,
      reason: record.reason,
      error: record.error,
      state_lost: record.stateLost,
      stdout_bytes: record.stdoutBytes,
      stderr_bytes: record.stderrBytes,
      started_at: record.startedAt,
      finished_at: record.finishedAt,
      duration_ms: record.durationMs,
    });
  }

  /** `told`: of one that was never accepted here. */
  finished(execution: EndedExecution, told?: { id: string; callback: SealedCallback | null }): void {
    const { execution_id, error } = execution;
    const data = {
      execution_id,
      tool_name: execution.tool_name,
      status: execution.status,
      exit_code: execution.exit_code,
      signal: execution.signal,
      reason: execution.reason,
      error: error === null ? null : { name: clipped(error.name, MAX_EVENT_NAME_CHARACTERS) },
      state_lost: execution.state_lost,
      stdout_bytes: execution.stdout_bytes,
      stderr_bytes: execution.stderr_bytes,
      started_at: execution.started_at,
      finished_at: execution.finished_at,
      duration_ms: execution.duration_ms,
    };
    this.record({ type: 'execution.finished', data }, told ?? { callback: this.#takeCallback(execution_id) });
  }

  #takeCallback(executionId: string): SealedCallback | null {
    const callback = this.#callbacks.get(executionId);
    if (callback === undefined) return null;
    this.#callbacks.delete(executionId);
    this.#store.deleteCallback(executionId);
    return callback;
  }

  /** Before the execution runs: its end is told there. */
  wantsCallback(executionId: string, callback: SealedCallback | null): void {
    if (callback === null) return;
    this.#store.putCallback(executionId, callback);
    this.#callbacks.set(executionId, callback);
  }

  /** What the tenant says: since when it has webhooks. Events since then that were not sent are. */
  heard(webhooksSinceMs: number | null): void {
    if (webhooksSinceMs === this.#webhooksSinceMs) return;
    this.#webhooksSinceMs = webhooksSinceMs;
    this.#store.setWebhooksSince(webhooksSinceMs);
    if (webhooksSinceMs === null) return;
    const before = this.#store.pendingCount();
    this.#store.makePending(webhooksSinceMs);
    this.#outbox.added(this.#store.pendingCount() - before);
  }

  taken(eventIds: readonly string[]): void {
    this.#outbox.taken(eventIds);
    this.#trimPurged();
  }

  recover(): void {
    this.#outbox.recover();
  }

  /** From the alarm. */
  check(nowMs: number): void {
    this.#outbox.check(nowMs);
    this.#trimPurged();
  }

  /** Of a session that is over: what is still to be sent stays, and the newest, for its number. */
  purge(): void {
    this.#store.trim(this.#last - 1);
    for (const executionId of this.#callbacks.keys()) this.#store.deleteCallback(executionId);
    this.#callbacks.clear();
  }

  /** What was still to be sent at the last purge of the session, and is not any more, goes as the rest has gone. */
  #trimPurged(): void {
    const session = this.#port.record();
    if (session?.state === 'destroyed' && session.purgeAtMs === null) this.#store.trim(this.#last - 1);
  }

  /** Calls `wake` at the next event, unless what is given is called before. */
  onNext(wake: () => void): () => void {
    this.#wakers.add(wake);
    return () => void this.#wakers.delete(wake);
  }

  #wake(): void {
    const wakers = [...this.#wakers];
    this.#wakers.clear();
    for (const wake of wakers) wake();
  }
}

function clipped(text: string, maxCharacters: number): string {
  return text.length <= maxCharacters ? text : `${text.slice(0, maxCharacters - 1)}…`;
}
