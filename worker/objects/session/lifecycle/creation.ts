/** Creates the session: the row first, then the sandbox; what fails halfway is taken down again. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import { newId } from '../../../../shared/ids.ts';
import type { SessionState } from '../../../../shared/lifecycle.ts';
import { isErrorCode } from '../../../../shared/problem.ts';
import type { Session } from '../../../../shared/session.ts';
import { configurationOf } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import type { Caller } from '../../caller.ts';
import { logWarning, messageOf } from '../../log.ts';
import type { CreateInput } from '../port.ts';
import { FAILED_LIVE_MS } from '../retention/retention.ts';
import type { SessionFacts, StoredNetwork } from '../rows/records.ts';
import { isOwner } from '../rows/session-row.ts';
import type { SessionRuntime } from '../runtime.ts';
import { sealNetwork } from '../sandbox/stored-network.ts';
import type { HeldSnapshot } from '../suspension/held-snapshot.ts';
import { listEntry, sessionView } from '../view.ts';

export async function createSession(
  runtime: SessionRuntime,
  env: Env,
  input: CreateInput,
): Promise<Outcome<Session>> {
  const { caller, sessionId, request } = input;
  const { secretsKey } = await configurationOf(env);
  const network = await sealNetwork(secretsKey, { tenant: caller.tenant, sessionId }, request.network);
  const former = formerCreate(runtime, caller);
  if (former !== undefined) return former;
  const { lifetime_s: lifetimeS } = request;
  const lifetimeMs = lifetimeS === null ? null : lifetimeS * 1_000;
  runtime.sandboxChanges.expect(input.programs ?? []);
  runtime.row.create(factsOf(input, network), { lifetimeMs, snapshot: heldOf(input) });
  runtime.look();
  const [attached] = await Promise.all([runtime.sandbox.attach(), recordInTenant(runtime, env, 'running')]);
  if (!attached.ok) return failed(runtime, env, attached);
  return success(viewOf(runtime));
}

/** What a create with this id has come to, be it this moment or soon; undefined where the session has to be made. */
export function formerCreate(
  runtime: SessionRuntime,
  caller: Caller,
): Outcome<Session> | Promise<Outcome<Session>> | undefined {
  const record = runtime.row.maybe;
  if (record !== undefined && !isOwner(record, caller)) return notFound();
  switch (record?.state) {
    case undefined:
      return undefined;
    case 'running':
    case 'paused':
    case 'suspended':
      return success(viewOf(runtime));
    case 'destroying':
    case 'destroyed':
      return notFound();
    case 'creating':
      return joined(runtime);
    case 'error':
      // Only a session that never ran may be tried again with its id.
      return runtime.executions.total > 0 || record.errorCode === 'host_lost' ? notFound() : undefined;
  }
}

/** The same create again while the first one works. */
async function joined(runtime: SessionRuntime): Promise<Outcome<Session>> {
  const attaching = runtime.sandbox.attaching;
  if (attaching === undefined) {
    return failure('idempotency_in_progress', 'the session is still being created', { retry_after_s: 1 });
  }
  const attached = await attaching;
  return attached.ok ? success(viewOf(runtime)) : attached;
}

/** The session could not be made: it says why for as long as it is known, and what there may be of it goes. */
export async function failed(
  runtime: SessionRuntime,
  env: Env,
  why: Extract<Outcome<null>, { ok: false }>,
): Promise<Outcome<Session>> {
  const { row } = runtime;
  if (row.record.state !== 'creating') return why;
  row.move('error', {
    errorCode: why.code,
    errorDetail: why.detail,
    destroyAtMs: Date.now(),
    purgeAtMs: Date.now() + FAILED_LIVE_MS,
  });
  runtime.executions.endAll('unknown', why.code);
  runtime.link.fence();
  const { tenant, sessionId } = row.record.facts;
  const terms = await env.TENANT.getByName(tenant).forgetSession(sessionId, null);
  runtime.events.heard(terms.webhooksSinceMs);
  runtime.look();
  return isErrorCode(why.code) ? why : failure('sandbox_failed', why.detail);
}

export async function recordInTenant(
  runtime: SessionRuntime,
  env: Env,
  state: SessionState = runtime.row.record.state,
): Promise<void> {
  const { record } = runtime.row;
  const { tenant, subject } = record.facts;
  try {
    const tenantObject = env.TENANT.getByName(tenant);
    runtime.account.hear(await tenantObject.recordSession({ subject, entry: listEntry(record, state) }));
  } catch (error: unknown) {
    logWarning('session_not_indexed', { session_id: record.facts.sessionId, detail: messageOf(error) });
  }
}

function factsOf(
  { sessionId, caller, request, host, ephemeral, snapshot }: CreateInput,
  network: StoredNetwork | null,
): SessionFacts {
  return {
    sessionId,
    tenant: caller.tenant,
    subject: caller.subject,
    image: request.image,
    imageDigest: host.imageDigest,
    pool: request.pool,
    hostId: host.hostId,
    limits: request.limits,
    environment: request.env,
    network,
    metadata: request.metadata,
    labels: request.labels,
    idleTimeoutMs: request.idle_timeout_s * 1000,
    onHostLoss: request.on_host_loss,
    rollback: request.rollback,
    suspendAfterIdleMs:
      request.suspend_after_idle_s === undefined ? null : request.suspend_after_idle_s * 1000,
    fromSnapshot:
      snapshot === undefined ? null : { snapshotId: snapshot.snapshotId, sessionId: snapshot.sessionId },
    createdAtMs: Date.now(),
    ephemeral,
  };
}

/** The sandbox begins with what the snapshot has, but for calls that were under way there and are not forked. */
function heldOf({ snapshot, request, host, programs = [] }: CreateInput): HeldSnapshot | null {
  if (snapshot === undefined) return null;
  const { snapshotId, manifestSha256, sessionId, requirements, generation, bytes, storedBytes, shell } =
    snapshot;
  return {
    snapshotId,
    manifestSha256,
    sessionId,
    requirements,
    executions: [],
    forks: programs.map(({ executionId }) => ({ execution_id: executionId, as: newId('exe') })),
    generation,
    bytes,
    storedBytes,
    shell,
    atMs: Date.now(),
    isOwn: false,
    isStopped: false,
    rescue: request.rescue === undefined ? null : { image: request.image, imageDigest: host.imageDigest },
    wake: null,
  };
}

export function viewOf({ row, executions }: SessionRuntime): Session {
  return sessionView(row.record, executions.open, executions.total);
}

export function notFound(): Outcome<never> {
  return failure('not_found', 'no such session, or not yours');
}
