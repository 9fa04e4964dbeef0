/** The events of a session, wired to its rows and to the queue that they leave by. */
import type { Env } from '../../../env.ts';
import type { SessionRecord } from '../rows/records.ts';
import { SessionEvents } from './events.ts';
import { SessionEventStore } from './store.ts';

export function eventsOf(parts: {
  context: DurableObjectState;
  env: Env;
  record: () => SessionRecord | undefined;
  dueAt: (atMs: number) => void;
}): SessionEvents {
  const { context, env, record, dueAt } = parts;
  return new SessionEvents(new SessionEventStore(context.storage), {
    record,
    send: async (notice) => {
      const facts = record()?.facts;
      if (facts === undefined) return;
      const { tenant, sessionId } = facts;
      await env.NOTICES.send(
        { kind: 'events', tenant, origin: { kind: 'session', sessionId }, ...notice },
        { contentType: 'json' },
      );
    },
    inBackground: (work) => context.waitUntil(work),
    dueAt,
  });
}
