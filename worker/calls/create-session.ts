/** Makes a session: finds a host that takes it, in the pool that it is for, and holds its place meanwhile. */
import { type ErrorCode, type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { newSessionId } from '../../shared/ids.ts';
import { resolveLimits } from '../../shared/resource-class.ts';
import type { CreateSession, Session } from '../../shared/session.ts';
import { invalid } from '../middleware/body.ts';
import type { Idempotency } from '../middleware/idempotency.ts';
import { unwrap } from '../middleware/refusal.ts';
import { poolCalls, SAFE, tenantCalls } from '../objects/object-calls.ts';
import type { ForkedProgram } from '../objects/session/programs/forked.ts';
import { rescuable } from '../objects/session/suspension/rescuable.ts';
import type { SnapshotFacts } from '../objects/snapshots/port.ts';
import { keepsPlaces, place, refusedBy } from '../placement/place.ts';
import { choosePool } from '../placement/pools.ts';
import type { Exchange } from '../routing/route.ts';
import { requireEnvironment } from '../tools/held-call.ts';
import { originOf } from './from-snapshot.ts';
import { type OwnSession, sessionOf } from './own-session.ts';

/** Hosts that are asked for one session: each costs the caller the way there and back. */
const MAX_HOSTS_TRIED = 3;
const FULL_RETRY_AFTER_S = 2;
/** Refusals of a host that say nothing of the next one; nothing was made there. */
const OF_ONE_HOST: ReadonlySet<ErrorCode> = new Set([
  'host_full',
  'host_degraded',
  'no_host_available',
  'snapshot_mismatch',
  'restore_failed',
]);

/** The id of the session to create: with a key, always the one that its first use was given. */
export async function reserveSession(
  exchange: Exchange<'tenant'>,
  idempotency: Idempotency | null,
): Promise<{ sessionId: string; fresh: boolean }> {
  const sessionId = await newSessionId(exchange.configuration.tagKey, exchange.principal.tenant);
  if (idempotency === null) return { sessionId, fresh: true };
  // The same reservation made twice is one reservation.
  const { id, fresh } = unwrap(
    await tenantCalls(exchange.env, exchange.principal.tenant)(
      (stub) => stub.reserveCreate({ ...idempotency, id: sessionId }),
      SAFE,
    ),
  );
  return { sessionId: id, fresh };
}

export interface NewSession {
  sessionId: string;
  fresh: boolean;
  request: CreateSession;
  ephemeral: boolean;
  /** What it is made of, where the request does not say it. */
  snapshot?: SnapshotFacts | undefined;
  programs?: ForkedProgram[];
  /** Hosts that have what it is made of. */
  near?: string[];
}

export async function placeAndCreate(
  exchange: Exchange<'tenant'>,
  { fresh, near = [], ...input }: NewSession,
): Promise<Outcome<Session>> {
  const { sessionId } = input;
  const environment =
    Object.keys(input.request.env).length === 0 ? success(null) : requireEnvironment(exchange.principal);
  if (!environment.ok) return environment;
  const origin = await originOf(exchange, input.request, input.snapshot);
  if (!origin.ok) return origin;
  const { snapshot, request } = origin.value ?? { request: input.request };
  const limits =
    snapshot === undefined
      ? resolveLimits(request.limits, exchange.configuration.resourceClasses)
      : success(snapshot.limits);
  if (!limits.ok) return limits;
  const poolName = snapshot?.pool ?? poolOf(exchange, request);
  const sized = { ...request, limits: limits.value, pool: poolName };
  const pool = poolCalls(exchange, poolName, 'body.pool');
  const session = sessionOf(exchange, sessionId);
  // What is there takes no second place.
  const found = fresh ? undefined : await join(session);
  if (found !== undefined) return found;
  const hold = { sessionId, subject: session.caller.subject, holder: exchange.requestId };
  const tenant = tenantCalls(exchange.env, session.caller.tenant);
  const held = await tenant((stub) => stub.holdSession(hold), SAFE);
  if (!held.ok) return held;
  const except: string[] = [];
  let outcome: Outcome<Session> | undefined;
  while (except.length < MAX_HOSTS_TRIED) {
    const isWhole = snapshot !== undefined && request.rescue === undefined;
    const wish = {
      image: request.rescue_image ?? snapshot?.imageDigest ?? request.image,
      sessionId,
      except,
      near,
      ...(isWhole ? { requires: snapshot.requirements } : {}),
    };
    const placed = await place({ name: poolName, calls: pool }, wish);
    if (!placed.ok) {
      outcome ??= (fresh ? undefined : await join(session)) ?? withRescue(placed, snapshot);
      break;
    }
    outcome = await session.call(
      (stub) =>
        stub.create({ ...input, request: sized, caller: session.caller, host: placed.value, snapshot }),
      // A second create of the same id by the same caller joins the first.
      SAFE,
    );
    if (outcome.ok || !OF_ONE_HOST.has(outcome.code)) break;
    // The pool's picture of a host is some seconds old: another one may have the room that this one lacks.
    outcome = { ...outcome, retry_after_s: outcome.retry_after_s ?? FULL_RETRY_AFTER_S };
    except.push(placed.value.hostId);
    refusedBy(poolName, placed.value.hostId);
  }
  if (keepsPlaces(poolName)) {
    exchange.waitUntil(pool((stub) => stub.placed({ sessionId }), SAFE).catch(() => undefined));
  }
  // One that came to a session is no longer held; another request may be at work on the same id.
  if (outcome?.ok !== true && fresh) {
    exchange.waitUntil(tenant((stub) => stub.releaseSession(hold), SAFE).catch(() => undefined));
  }
  return orDeleted(outcome ?? failure('no_host_available', 'no host took the session'));
}

/** Where a session goes that names a pool, a region, or a class that some pools are for. */
function poolOf({ configuration }: Exchange<'tenant'>, request: CreateSession): string {
  const { pools } = configuration;
  if (!pools.has(request.pool)) throw invalid([{ path: 'body.pool', expected: 'a pool of this edge' }]);
  const chosen = choosePool(pools, request);
  if (chosen !== undefined) return chosen;
  const path = request.region === undefined ? 'body.limits.class' : 'body.region';
  throw invalid([{ path, expected: 'one that the pool, or a pool of this edge, is for' }]);
}

/** A refusal says what can be had all the same. */
function withRescue(why: Failure, snapshot: SnapshotFacts | undefined): Failure {
  const hasWorkspace = snapshot?.workspace !== undefined && 'bytes' in snapshot.workspace;
  return why.code === 'snapshot_mismatch' && hasWorkspace ? rescuable(why) : why;
}

/** The session that the first request with an Idempotency-Key has made, or is making. */
async function join(session: OwnSession): Promise<Outcome<Session> | undefined> {
  const found = await session.call((stub) => stub.join(session.caller), SAFE);
  if (!found.ok) return orDeleted(found);
  return found.value === null ? undefined : success(found.value);
}

function orDeleted(created: Outcome<Session>): Outcome<Session> {
  if (created.ok || created.code !== 'not_found') return created;
  return failure('session_deleted', 'the session that this Idempotency-Key created was deleted');
}
