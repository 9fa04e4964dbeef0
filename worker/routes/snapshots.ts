/** Suspension, and named snapshots of sessions: made, listed, removed, and what sessions are made of. */
import * as z from 'zod';
import { type ErrorCode, type Outcome, success } from '../../shared/errors.ts';
import { newId, newSessionId, SnapshotIdSchema } from '../../shared/ids.ts';
import { RollbackSchema } from '../../shared/rollback.ts';
import { CreateSessionSchema, type Session, SessionSchema } from '../../shared/session.ts';
import { RESTORE_TIMEOUT_MS, SUSPEND_TIMEOUT_MS } from '../../shared/snapshot.ts';
import {
  CreateSnapshotSchema,
  ForkedSchema,
  ForkSchema,
  type Snapshot,
  SnapshotListSchema,
  SnapshotSchema,
} from '../../shared/snapshot-resource.ts';
import { placeAndCreate } from '../calls/create-session.ts';
import { createOnce } from '../calls/keyed-creation.ts';
import { notFound, type OwnSession, ownSession, sessionOf } from '../calls/own-session.ts';
import { idempotencyOf } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, snapshotCalls, UNSAFE } from '../objects/object-calls.ts';
import { snapshotView } from '../objects/snapshots/view.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { CREATE_ERRORS, FROM_SNAPSHOT_ERRORS, IDEMPOTENCY_HEADER_DOC } from './sessions.ts';

const READ = { kind: 'tenant', scopes: ['sessions:read'] } as const;
const WRITE = { kind: 'tenant', scopes: ['sessions:write'] } as const;

/** What may become of asking a host for a snapshot. */
const SUSPEND_ERRORS = [
  'not_found',
  'session_not_running',
  'session_failed',
  'quota_exceeded',
  'suspend_failed',
  'storage_unavailable',
  'sandbox_failed',
  'host_unresponsive',
  'host_lost',
  'host_degraded',
  'fenced',
  'grant_invalid',
  'grant_expired',
] as const satisfies readonly ErrorCode[];

/** What may become of making a sandbox of one. */
const WAKE_ERRORS = [...new Set<ErrorCode>([...SUSPEND_ERRORS, ...CREATE_ERRORS, ...FROM_SNAPSHOT_ERRORS])];

/** A host has given up by then, and nothing is kept of what it had begun. */
const SNAPSHOT_WITHIN_MS = 3 * SUSPEND_TIMEOUT_MS;
/** By then a fork is whole, or its sessions are ended. */
const FORK_WITHIN_MS = SNAPSHOT_WITHIN_MS + 4 * RESTORE_TIMEOUT_MS;

const sessionAnswer = (description: string) => ({
  200: { description, content: { 'application/json': SessionSchema } },
});

const suspendSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/suspend',
  operationId: 'suspendSession',
  summary: 'Store the session with all that runs in it, and free its host; any call brings it back',
  access: WRITE,
  answers: sessionAnswer('The suspended session'),
  errors: SUSPEND_ERRORS,
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await session.call((stub) => stub.suspend(session.caller), UNSAFE)));
  },
});

const migrateSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/migrate',
  operationId: 'migrateSession',
  summary: 'Move the session to another host of its pool, also in the middle of a call',
  access: WRITE,
  answers: sessionAnswer('The session, on its new host'),
  errors: WAKE_ERRORS,
  handle: async (exchange, { params }) => {
    const session = await ownSession(exchange, params.session_id);
    return reply(200, unwrap(await session.call((stub) => stub.migrate(session.caller), UNSAFE)));
  },
});

const createSnapshot = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/snapshots',
  operationId: 'createSnapshot',
  summary: 'Keep the session as it is now under a name; it stands still for the checkpoint only, and goes on',
  access: WRITE,
  headers: IDEMPOTENCY_HEADER_DOC,
  body: CreateSnapshotSchema,
  answers: {
    201: {
      description: 'The snapshot',
      content: { 'application/json': SnapshotSchema },
      headers: ['Location'],
    },
  },
  errors: WAKE_ERRORS,
  handle: async (exchange, { params, body, raw }) => {
    const session = await ownSession(exchange, params.session_id);
    const { tenant, subject } = exchange.principal;
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: `POST /v1/sessions/${session.sessionId}/snapshots`,
      subject,
      body: raw.bytes,
    });
    const find = async (snapshotId: string) => {
      const index = snapshotCalls(exchange.env, tenant);
      const found = await index((stub) => stub.find(subject, snapshotId), SAFE);
      return found.ok ? success(snapshotView(found.value.facts, found.value)) : found;
    };
    const created = await createOnce<Snapshot>({ env: exchange.env, tenant }, idempotency, {
      id: async () => newId('snp'),
      make: async (snapshotId) => {
        const wish = { kind: 'named', name: body.name, snapshotId } as const;
        const made = await session.call((stub) => stub.snapshot(session.caller, wish), UNSAFE);
        if (!made.ok) return made;
        // As whoever asks again is shown it.
        const found = await find(snapshotId);
        return found.ok
          ? found
          : success(snapshotView(made.value, { name: body.name, createdAtMs: Date.now() }));
      },
      find,
      withinMs: SNAPSHOT_WITHIN_MS,
    });
    const snapshot = unwrap(created);
    return reply(201, snapshot, { Location: `/v1/snapshots/${snapshot.snapshot_id}` });
  },
});

const rollbackSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/rollback',
  operationId: 'rollbackSession',
  summary:
    'Take the session back to a snapshot of its own, or to where it was before a call; calls that run are interrupted, and what waits runs there',
  access: WRITE,
  body: RollbackSchema,
  answers: sessionAnswer('The session, as it was'),
  errors: WAKE_ERRORS,
  handle: async (exchange, { params, body }) => {
    const session = await ownSession(exchange, params.session_id);
    const back = await session.call((stub) => stub.rollBack(session.caller, body), UNSAFE);
    return reply(200, unwrap(back));
  },
});

const forkSession = defineRoute({
  method: 'POST',
  path: '/v1/sessions/{session_id}/fork',
  operationId: 'forkSession',
  summary: 'Make new sessions that begin as this one is now, all of them or none; it goes on',
  access: WRITE,
  headers: IDEMPOTENCY_HEADER_DOC,
  body: ForkSchema,
  answers: {
    201: { description: 'The new sessions', content: { 'application/json': ForkedSchema } },
  },
  errors: WAKE_ERRORS,
  handle: async (exchange, { params, body, raw }) => {
    const parent = await ownSession(exchange, params.session_id);
    const { tenant, subject } = exchange.principal;
    const idempotency = await idempotencyOf({
      header: exchange.request.headers.get('Idempotency-Key'),
      route: `POST /v1/sessions/${parent.sessionId}/fork`,
      subject,
      body: raw.bytes,
    });
    const idOfChild = () => newSessionId(exchange.configuration.tagKey, tenant);
    const created = await createOnce<Session[]>({ env: exchange.env, tenant }, idempotency, {
      id: async () => (await Promise.all(Array.from({ length: body.count }, idOfChild))).join(),
      make: (ids) => fork(exchange, parent, ids.split(',')),
      find: (ids) => described(exchange, ids.split(',')),
      withinMs: FORK_WITHIN_MS,
    });
    return reply(201, { sessions: unwrap(created) });
  },
});

/** All of them, or why there are not. */
async function described(exchange: Exchange<'tenant'>, ids: string[]): Promise<Outcome<Session[]>> {
  const found = await Promise.all(
    ids.map((id) => {
      const child = sessionOf(exchange, id);
      return child.call((stub) => stub.describe(child.caller), SAFE);
    }),
  );
  const missing = found.find((one) => !one.ok);
  return missing ?? success(found.flatMap((one) => (one.ok ? [one.value] : [])));
}

async function fork(
  exchange: Exchange<'tenant'>,
  parent: OwnSession,
  ids: string[],
): Promise<Outcome<Session[]>> {
  const before = await parent.call((stub) => stub.describe(parent.caller), SAFE);
  if (!before.ok) return before;
  const { metadata, idle_timeout_s, suspend_after_idle_s, on_host_loss, rollback, host_id } = before.value;
  const near = host_id === null ? [] : [host_id];
  const made = await parent.call((stub) => stub.fork(parent.caller), UNSAFE);
  if (!made.ok) return made;
  const { snapshot, programs } = made.value;
  const request = CreateSessionSchema.parse({
    metadata,
    idle_timeout_s,
    on_host_loss,
    rollback,
    ...(suspend_after_idle_s === null ? {} : { suspend_after_idle_s }),
  });
  const index = snapshotCalls(exchange.env, exchange.principal.tenant);
  const { snapshotId } = snapshot;
  const begun = await index((stub) => stub.beginFork({ snapshotId, children: ids }), UNSAFE);
  if (!begun.ok) return begun;
  const outcomes = await Promise.all(
    ids.map((sessionId) =>
      placeAndCreate(exchange, {
        sessionId,
        fresh: true,
        request,
        ephemeral: false,
        snapshot,
        programs,
        near,
      }),
    ),
  );
  const failed = outcomes.find((outcome) => !outcome.ok);
  const kept = failed ?? (await index((stub) => stub.endFork({ snapshotId, isWhole: true }), UNSAFE));
  if (kept.ok) return success(outcomes.flatMap((made) => (made.ok ? [made.value] : [])));
  const born = outcomes.flatMap((made) => (made.ok ? [sessionOf(exchange, made.value.session_id)] : []));
  await Promise.all(born.map((child) => child.call((stub) => stub.destroy(child.caller), UNSAFE)));
  // Of those that did not answer, too.
  exchange.waitUntil(index((stub) => stub.endFork({ snapshotId, isWhole: false }), UNSAFE));
  return kept;
}

const ListQuerySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(50).describe('Snapshots in one answer.'),
  cursor: z.string().min(1).max(512).optional().describe('`next_cursor` of the answer before.'),
});

const listSnapshots = defineRoute({
  method: 'GET',
  path: '/v1/snapshots',
  operationId: 'listSnapshots',
  summary: 'The named snapshots of the caller, newest first',
  access: READ,
  query: ListQuerySchema,
  answers: { 200: { description: 'A page', content: { 'application/json': SnapshotListSchema } } },
  errors: [],
  handle: async (exchange, { query }) => {
    const { tenant, subject } = exchange.principal;
    const page = await snapshotCalls(exchange.env, tenant)(
      (stub) => stub.list({ subject, limit: query.limit, cursor: query.cursor }),
      SAFE,
    );
    return reply(200, unwrap(page));
  },
});

const getSnapshot = defineRoute({
  method: 'GET',
  path: '/v1/snapshots/{snapshot_id}',
  operationId: 'getSnapshot',
  summary: 'One snapshot',
  access: READ,
  answers: { 200: { description: 'The snapshot', content: { 'application/json': SnapshotSchema } } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const { tenant, subject } = exchange.principal;
    const snapshotId = snapshotIdOf(params.snapshot_id);
    const found = await snapshotCalls(exchange.env, tenant)((stub) => stub.find(subject, snapshotId), SAFE);
    const { facts, name, createdAtMs } = unwrap(found);
    return reply(200, snapshotView(facts, { name, createdAtMs }));
  },
});

const deleteSnapshot = defineRoute({
  method: 'DELETE',
  path: '/v1/snapshots/{snapshot_id}',
  operationId: 'deleteSnapshot',
  summary: 'Remove a snapshot and what is stored of it; sessions that were made of it stay',
  access: WRITE,
  answers: { 204: { description: 'The snapshot is gone' } },
  errors: ['not_found', 'session_not_running'],
  handle: async (exchange, { params }) => {
    const { tenant, subject } = exchange.principal;
    const snapshotId = snapshotIdOf(params.snapshot_id);
    unwrap(await snapshotCalls(exchange.env, tenant)((stub) => stub.remove(subject, snapshotId), UNSAFE));
    return emptyReply();
  },
});

function snapshotIdOf(text: string): string {
  if (SnapshotIdSchema.safeParse(text).success) return text;
  throw notFound('no such snapshot, or not yours');
}

export const snapshotRoutes = [
  suspendSession,
  migrateSession,
  createSnapshot,
  rollbackSession,
  forkSession,
  listSnapshots,
  getSnapshot,
  deleteSnapshot,
];
