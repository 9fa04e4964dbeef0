/** Pause and resume of a session, also in the middle of a call. */
import type { ErrorCode } from '../../shared/errors.ts';
import { ResumeSchema, SessionSchema } from '../../shared/session.ts';
import { alone } from '../calls/from-snapshot.ts';
import { ownSession } from '../calls/own-session.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import { reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { CREATE_ERRORS, FROM_SNAPSHOT_ERRORS } from './sessions.ts';

const ERRORS = [
  'not_found',
  'session_not_running',
  'session_failed',
  'quota_exceeded',
  'sandbox_failed',
  'host_unresponsive',
  'host_lost',
  'fenced',
  'grant_invalid',
  'grant_expired',
] as const satisfies readonly ErrorCode[];

/** Of one that is suspended: what may become of making a sandbox. */
const RESUME_ERRORS = [...new Set<ErrorCode>([...ERRORS, ...CREATE_ERRORS, ...FROM_SNAPSHOT_ERRORS])];

const ACCESS = { kind: 'tenant', scopes: ['sessions:write'] } as const;

const pauseSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/pause',
  operationId: 'pauseSession',
  summary:
    'Stop everything in the session where it stands; no clock of it goes on. Of a paused session, nothing',
  access: ACCESS,
  answers: {
    200: { description: 'The paused session', content: { 'application/json': SessionSchema } },
  },
  errors: ERRORS,
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await session.call((stub) => stub.pause(session.caller), SAFE)));
  },
});

const resumeSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/resume',
  operationId: 'resumeSession',
  summary:
    'Let a paused session go on where it stands, and bring a suspended one back. Of a running session, nothing',
  access: ACCESS,
  body: ResumeSchema,
  answers: {
    200: { description: 'The running session', content: { 'application/json': SessionSchema } },
  },
  errors: RESUME_ERRORS,
  handle: async (exchange, { params, body }) => {
    if (body.rescue === undefined && body.rescue_image !== undefined) throw alone('rescue_image', 'rescue');
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await session.call((stub) => stub.resume(session.caller, body), SAFE)));
  },
});

export const pausingRoutes = [pauseSession, resumeSession];
