/**
 * Sends what has to leave the session. An event stays in its row until whoever delivers it says that it is delivered, or
 * written down to be tried again: until then it is sent again, with the same id.
 */
import type { EventsNotice, OutgoingEvent } from '../../../webhooks/message.ts';
import { MAX_EVENT_PENDING_MS, MAX_NOTICE_CHARACTERS } from '../../../webhooks/message.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { SessionEventStore } from './store.ts';

/** What comes together leaves together. */
const GATHER_MS = 10;
const MAX_EVENTS_AT_ONCE = 32;
/** Longer than an attempt to deliver takes. */
const FIRST_RESEND_MS = 30_000;
const LONGEST_RESEND_MS = 600_000;

export interface OutboxPort {
  send(events: EventsNotice['events']): Promise<unknown>;
  inBackground(work: Promise<unknown>): void;
  /** The alarm has to ring by then. */
  dueAt(atMs: number): void;
}

export class EventOutbox {
  readonly #store: SessionEventStore;
  readonly #port: OutboxPort;
  #pending: number;
  #sentThrough = 0;
  #resendAtMs = 0;
  #resends = 0;
  #sending: Promise<void> | undefined;

  constructor(store: SessionEventStore, port: OutboxPort) {
    this.#store = store;
    this.#port = port;
    this.#pending = store.pendingCount();
  }

  /** When the alarm has to look again; null where nothing is left to send. */
  get dueAtMs(): number | null {
    return this.#pending === 0 ? null : this.#resendAtMs;
  }

  /** There are `count` more, written this moment. */
  added(count: number): void {
    if (count === 0) return;
    if (this.#pending === 0) {
      this.#resends = 0;
      this.#resendAtMs = Date.now() + FIRST_RESEND_MS;
    }
    this.#pending += count;
    this.#port.dueAt(this.#resendAtMs);
    this.#wake();
  }

  /** Memory is new: whether those that were sent arrived is not known. */
  recover(): void {
    if (this.#pending > 0) this.#again(Date.now());
  }

  taken(eventIds: readonly string[]): void {
    this.#store.taken(eventIds);
    this.#pending = this.#store.pendingCount();
  }

  /** From the alarm. */
  check(nowMs: number): void {
    if (this.#pending === 0 || nowMs < this.#resendAtMs) return;
    this.dropped(this.#store.expire(nowMs - MAX_EVENT_PENDING_MS));
    if (this.#pending > 0) this.#again(nowMs);
  }

  dropped(count: number): void {
    if (count === 0) return;
    this.#pending = this.#store.pendingCount();
    logWarning('events_not_sent', { count });
  }

  #again(nowMs: number): void {
    const waitMs = Math.min(LONGEST_RESEND_MS, FIRST_RESEND_MS * 2 ** Math.min(this.#resends, 10));
    this.#resends += 1;
    this.#resendAtMs = nowMs + waitMs;
    this.#port.dueAt(this.#resendAtMs);
    this.#sentThrough = 0;
    this.#wake();
  }

  #wake(): void {
    if (this.#sending !== undefined) return;
    this.#sending = this.#send()
      .catch((error: unknown) => logWarning('events_not_sent_now', { detail: messageOf(error) }))
      .finally(() => {
        this.#sending = undefined;
      });
    this.#port.inBackground(this.#sending);
  }

  async #send(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, GATHER_MS));
    for (let next = this.#next(); next.length > 0; next = this.#next()) {
      await this.#port.send(next.map(({ outgoing }) => outgoing));
      this.#sentThrough = next.at(-1)?.n ?? this.#sentThrough;
    }
  }

  /** As many as fit a message. */
  #next(): { n: number; outgoing: OutgoingEvent }[] {
    const next: { n: number; outgoing: OutgoingEvent }[] = [];
    let characters = 0;
    for (const { event, callback } of this.#store.pendingAfter(this.#sentThrough, MAX_EVENTS_AT_ONCE)) {
      const outgoing = { event, callback };
      characters += JSON.stringify(outgoing).length;
      if (next.length > 0 && characters > MAX_NOTICE_CHARACTERS) break;
      next.push({ n: event.n, outgoing });
    }
    return next;
  }
}
