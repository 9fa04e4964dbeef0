/** Tells the end of a workflow: kept until it is delivered, or written down to be. */
import type { SealedCallback } from '../../../shared/callback.ts';
import type { Event } from '../../../shared/event.ts';
import { newId } from '../../../shared/ids.ts';
import { MAX_EVENT_PENDING_MS, type NoticeQueue } from '../../webhooks/message.ts';
import { logWarning, messageOf } from '../log.ts';
import type { Plan, RunEnd } from './port.ts';
import type { WorkflowStore } from './store.ts';

export class WorkflowOutbox {
  readonly #store: WorkflowStore;
  readonly #queue: NoticeQueue;

  constructor(store: WorkflowStore, queue: NoticeQueue) {
    this.#store = store;
    this.#queue = queue;
  }

  /** In the write of the end. */
  put({ workflowId, definition }: Plan, { status, reason }: RunEnd, finishedAt: string): void {
    this.#store.putOutgoing({
      id: newId('evt'),
      type: 'workflow.finished',
      timestamp: finishedAt,
      data: { workflow_id: workflowId, name: definition.name ?? null, status, reason },
    });
  }

  get isEmpty(): boolean {
    return this.#store.outgoing() === undefined;
  }

  /** What is left to tell, as often as wanted. */
  async send({ workflowId, owner, callback, definition }: Plan): Promise<void> {
    const event = this.#store.outgoing();
    if (event === undefined) return;
    if (Date.now() >= Date.parse(event.timestamp) + MAX_EVENT_PENDING_MS) {
      logWarning('events_not_sent', { count: 1 });
      this.taken([event.id]);
      return;
    }
    const notice = noticeOf({ tenant: owner.tenant, workflowId, event, callback, labels: definition.labels });
    try {
      await this.#queue.send(notice, { contentType: 'json' });
    } catch (error: unknown) {
      logWarning('events_not_sent_now', { detail: messageOf(error) });
    }
  }

  taken(eventIds: readonly string[]): void {
    for (const eventId of eventIds) this.#store.deleteOutgoing(eventId);
  }
}

function noticeOf(about: {
  tenant: string;
  workflowId: string;
  event: Event;
  callback: SealedCallback | null;
  labels: Record<string, string>;
}) {
  const { tenant, workflowId, event, callback, labels } = about;
  return {
    kind: 'events' as const,
    tenant,
    origin: { kind: 'workflow' as const, workflowId },
    labels,
    events: [{ event, callback }],
  };
}
