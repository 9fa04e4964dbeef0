/** Tells the end of a run: kept until it is delivered, or written down to be. */
import type { SealedCallback } from '../../../shared/callback.ts';
import type { Event } from '../../../shared/event.ts';
import { type EventsNotice, MAX_EVENT_PENDING_MS, type NoticeQueue } from '../../webhooks/message.ts';
import { logWarning, messageOf } from '../log.ts';
import { OutgoingStore } from './outgoing-store.ts';

/** Whose end it is, and where it is told beside the webhooks that want it. */
export interface RunAddress extends Pick<EventsNotice, 'tenant' | 'origin' | 'labels'> {
  callback: SealedCallback | null;
}

export class RunOutbox {
  readonly #store: OutgoingStore;
  readonly #queue: NoticeQueue;

  constructor(storage: DurableObjectStorage, queue: NoticeQueue) {
    this.#store = new OutgoingStore(storage);
    this.#queue = queue;
  }

  /** In the write of the end. */
  put(event: Event): void {
    this.#store.put(event);
  }

  get isEmpty(): boolean {
    return this.#store.first() === undefined;
  }

  /** What is left to tell, as often as wanted. */
  async send({ callback, ...about }: RunAddress): Promise<void> {
    const event = this.#store.first();
    if (event === undefined) return;
    if (Date.now() >= Date.parse(event.timestamp) + MAX_EVENT_PENDING_MS) {
      logWarning('events_not_sent', { count: 1 });
      this.taken([event.id]);
      return;
    }
    try {
      await this.#queue.send(
        { kind: 'events', ...about, events: [{ event, callback }] },
        { contentType: 'json' },
      );
    } catch (error: unknown) {
      logWarning('events_not_sent_now', { detail: messageOf(error) });
    }
  }

  taken(eventIds: readonly string[]): void {
    for (const eventId of eventIds) this.#store.delete(eventId);
  }
}
