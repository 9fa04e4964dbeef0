/** A client of an execution's events on a WebSocket, which says what it took, and notes when it heard anything at all. */
import { WebSocket } from 'undici';
import * as z from 'zod';
import { type StreamEvent, StreamEventSchema } from '../../shared/execution.ts';
import type { SessionClient } from './client.ts';

const MessageSchema = z.object({ id: z.string(), data: StreamEventSchema.nullable() });
const EVERY_MESSAGES = 16;

export interface HeardEvents {
  events: StreamEvent[];
  /** Arrival times of all messages, those without an event included. */
  activityMs: number[];
  code: number;
}

/** Resolves when the edge closes the socket. */
export function hearEvents(session: SessionClient, executionId: string): Promise<HeardEvents> {
  const url = `${session.api.url.replace('http', 'ws')}${session.path}/executions/${executionId}/events`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${session.api.token}` } });
  const events: StreamEvent[] = [];
  const activityMs = [performance.now()];
  const { promise, resolve, reject } = Promise.withResolvers<HeardEvents>();
  socket.addEventListener('message', ({ data: text }) => {
    activityMs.push(performance.now());
    const { data } = MessageSchema.parse(JSON.parse(String(text)));
    if (data !== null) events.push(data);
    const messages = activityMs.length - 1;
    if (messages % EVERY_MESSAGES === 0) socket.send(JSON.stringify({ type: 'taken', messages }));
  });
  socket.addEventListener('error', () => reject(new Error('the socket failed')));
  socket.addEventListener('close', ({ code }) => resolve({ events, activityMs, code }));
  return promise;
}
