/** Sessions: create, list, read, delete. */
import * as z from 'zod';
import type { ErrorCode } from '../../shared/errors.ts';
import { SessionStateSchema } from '../../shared/lifecycle.ts';
import {
  CreateSessionSchema,
  SessionListSchema,
  SessionSchema,
  UpdateSessionSchema,
} from '../../shared/session.ts';
import { placeAndCreate, reserveSession } from '../calls/create-session.ts';
import { ownSession } from '../calls/own-session.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, tenantCalls, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { LABEL_QUERY, labelsOf } from './label-query.ts';

export const IDEMPOTENCY_HEADER_DOC = {
  'Idempotency-Key': 'Repeating a request with the same key gives the first answer and does nothing twice.',
};

/** What placing and making a sandbox may end in; a host may refuse the grant for each of its reasons. */
export const CREATE_ERRORS = [
  'idempotency_conflict',
  'idempotency_in_progress',
  'session_deleted',
  'policy_refused',
  'quota_exceeded',
  'image_not_found',
  'image_refused',
  'limits_exceeded',
  'egress_refused',
  'grant_invalid',
  'grant_expired',
  'fenced',
  'no_host_available',
  'host_unresponsive',
  'host_lost',
  'host_full',
  'host_degraded',
  'sandbox_failed',
] as const satisfies readonly ErrorCode[];

/** Beside those, of a session that is made of a snapshot. */
export const FROM_SNAPSHOT_ERRORS = [
  'not_found',
  'snapshot_mismatch',
  'snapshot_damaged',
  'restore_failed',
  'storage_unavailable',
] as const satisfies readonly ErrorCode[];

const createSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions',
  operationId: 'createSession',
  summary: 'Create a session; it is usable when the answer comes',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  headers: IDEMPOTENCY_HEADER_DOC,
  body: CreateSessionSchema,
  answers: {
    201: {
      description: 'The session',
      content: { 'application/json': SessionSchema },
      headers: ['Location'],
    },
  },
  errors: [...CREATE_ERRORS, ...FROM_SNAPSHOT_ERRORS],
  handle: async (exchange, { body, raw }) => {
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: 'POST /v1/sessions',
      subject: exchange.principal.subject,
      body: raw.bytes,
    });
    const reserved = await reserveSession(exchange, idempotency);
    const session = unwrap(await placeAndCreate(exchange, { ...reserved, request: body, ephemeral: false }));
    return reply(201, session, { Location: `/v1/sessions/${session.session_id}` });
  },
});

const ListQuerySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(50).describe('Sessions in one answer.'),
  cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the answer before.'),
  label: LABEL_QUERY,
  state: SessionStateSchema.optional().describe('Only those in this state.'),
});

const listSessions = defineRoute({
  method: 'GET',
  path: '/v1/sessions',
  operationId: 'listSessions',
  summary: 'The sessions of the caller, newest first, all or those with some labels',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  query: ListQuerySchema,
  answers: { 200: { description: 'A page', content: { 'application/json': SessionListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const { tenant, subject } = exchange.principal;
    const { limit, cursor, state } = query;
    const labels = labelsOf(query.label);
    const page = await tenantCalls(exchange.env, tenant)(
      (stub) => stub.listSessions({ subject, limit, cursor, labels, state }),
      SAFE,
    );
    return reply(200, unwrap(page));
  },
});

const getSession = defineRoute({
  method: 'GET',
  path: '/v1/sessions/{session_id}',
  operationId: 'getSession',
  summary: 'One session',
  access: { kind: 'tenant', scopes: ['sessions:read'] },
  answers: { 200: { description: 'The session', content: { 'application/json': SessionSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await session.call((stub) => stub.describe(session.caller), SAFE)));
  },
});

const updateSession = defineRoute({
  method: 'PATCH',
  path: '/v1/sessions/{session_id}',
  operationId: 'updateSession',
  summary: 'Change labels, metadata, or how long the session lives; what is not named stays',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  body: UpdateSessionSchema,
  answers: { 200: { description: 'The session', content: { 'application/json': SessionSchema } } },
  errors: ['not_found', 'session_failed'],
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    // Setting it twice sets it once; only `lifetime_s` counts from the later moment.
    return reply(200, unwrap(await session.call((stub) => stub.update(session.caller, body), SAFE)));
  },
});

const deleteSession = defineRoute({
  method: 'DELETE',
  path: '/v1/sessions/{session_id}',
  operationId: 'deleteSession',
  summary: 'End a session and everything in it; the second time it is not found',
  access: { kind: 'tenant', scopes: ['sessions:write'] },
  answers: { 204: { description: 'The session is gone' } },
  errors: ['not_found', 'host_unresponsive'],
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    unwrap(await session.call((stub) => stub.destroy(session.caller), UNSAFE));
    return emptyReply();
  },
});

export const sessionRoutes = [createSession, listSessions, getSession, updateSession, deleteSession];
