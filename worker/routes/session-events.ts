/** What happens in a session, as it happens. */
import * as z from 'zod';
import { ownSession } from '../calls/own-session.ts';
import { streamSessionEvents } from '../calls/session-stream.ts';
import { EVENT_STREAM_MEDIA_TYPE } from '../middleware/body.ts';
import { defineRoute } from '../routing/route.ts';

export const streamEventsOfSession = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}/events',
  operationId: 'streamSessionEvents',
  summary:
    'What happens in a session, from the oldest event that is kept or after `Last-Event-ID`, until it is gone',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: z.strictObject({
    last_event_id: z
      .string()
      .max(32)
      .optional()
      .describe('As `Last-Event-ID`, for those who cannot send it.'),
  }),
  headers: { 'Last-Event-ID': 'The `id` of the last event that arrived: the stream goes on after it.' },
  answers: {
    200: {
      description: 'Server-sent events, each with a number as `id`; comments keep the stream alive',
      content: { [EVENT_STREAM_MEDIA_TYPE]: z.string() },
    },
  },
  errors: ['not_found', 'quota_exceeded'],
  handle: async (exchange, { params, query }) => {
    const session = await ownSession(exchange, params.session_id);
    const given = exchange.request.headers.get('Last-Event-ID') ?? query.last_event_id ?? '';
    return streamSessionEvents(session, given === '' ? null : given);
  },
});
