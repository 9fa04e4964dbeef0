/** A client of an execution's events on a WebSocket, which says what it took, and notes when it heard anything at all. */
import { WebSocket } from 'undici';
import * as z from 'zod';
import { type StreamEvent, StreamEventSchema } from '../../shared/execution.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { until } from './until.ts';

const MessageSchema = z.object({ id: z.string(), data: StreamEventSchema.nullable() });
const EVERY_MESSAGES = 16;

export interface HeardEvents {
  events: StreamEvent[];
  /** Of the last message: where to come back. */
  lastId: string | undefined;
  /** Arrival times of all messages, those without an event included. */
  activityMs: number[];
  code: number;
}

/** Resolves when the socket is closed, by the edge or because that is gone; rejects where it was never open. */
export function hearEvents(
  session: SessionClient,
  executionId: string,
  after?: string,
): Promise<HeardEvents> {
  const query = after === undefined ? '' : `?last_event_id=${encodeURIComponent(after)}`;
  const url = `${session.api.url.replace('http', 'ws')}${session.path}/executions/${executionId}/events${query}`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${session.api.token}` } });
  const events: StreamEvent[] = [];
  const activityMs = [performance.now()];
  let lastId = after;
  let isOpen = false;
  const { promise, resolve, reject } = Promise.withResolvers<HeardEvents>();
  socket.addEventListener('message', ({ data: text }) => {
    activityMs.push(performance.now());
    const { id, data } = MessageSchema.parse(JSON.parse(String(text)));
    lastId = id;
    if (data !== null) events.push(data);
    const messages = activityMs.length - 1;
    if (messages % EVERY_MESSAGES === 0) socket.send(JSON.stringify({ type: 'taken', messages }));
  });
  socket.addEventListener('open', () => {
    isOpen = true;
  });
  socket.addEventListener('error', () => (isOpen ? undefined : reject(new Error('the socket failed'))));
  socket.addEventListener('close', ({ code }) => resolve({ events, lastId, activityMs, code }));
  return promise;
}

/** All events of an execution, by as many sockets as it takes: each begins behind the last message of the one before. */
export async function hearToEnd(session: SessionClient, executionId: string): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  let lastId: string | undefined;
  await until('the end is heard', 2 * PATIENCE_MS, async () => {
    const heard = await hearEvents(session, executionId, lastId).catch(() => undefined);
    events.push(...(heard?.events ?? []));
    lastId = heard?.lastId ?? lastId;
    return events.at(-1)?.event === 'end' ? true : undefined;
  });
  return events;
}
