/**
 * The sandbox of the session went with its host, and the session asked to go on: from the last snapshot that it comes from, and
 * with a workspace alone where there is none that a host can restore, and in an empty sandbox without that. What ran is unknown, what waits runs there.
 */
import { failure } from '../../../../shared/errors.ts';
import type { Env } from '../../../env.ts';
import { logWarning, messageOf } from '../../log.ts';
import { standingAt } from '../restore-points/rollback.ts';
import type { PointSnapshot } from '../restore-points/store.ts';
import { isToBeSent } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { LostReason } from '../sandbox/sandbox.ts';
import { hasWorkspace } from '../suspension/rescuable.ts';

/** Of its host, or what its host says of the sandbox. */
export type RebuildReason = 'host_lost' | LostReason;

interface Origin {
  point: PointSnapshot;
  takenAtMs: number;
  /** Of its workspace alone. */
  isRescue: boolean;
}

/** Throws where it is not known which snapshots there are; nothing is given up then. */
export async function rebuild(runtime: SessionRuntime, env: Env, reason: RebuildReason): Promise<void> {
  const { row, suspension, waking } = runtime;
  const { epoch, sandbox } = row.record;
  if (reason === 'host_lost' && sandbox === 'lost') return;
  if ((await suspension.takeIn(reason)) !== 'not_moved') return;
  const origin = await originOf(runtime, env, reason);
  const { state, facts } = row.record;
  if (row.record.epoch !== epoch || row.record.sandbox !== sandbox) return;
  if (state !== 'running' && state !== 'paused') return;
  if (origin === undefined || state === 'paused') return leaveHost(runtime, reason, origin);
  const woken = await waking.leaving(facts.hostId, () => {
    leaveHost(runtime, reason, origin);
    return waking.wake();
  });
  // The next call tries it again.
  if (!woken.ok) logWarning('not_rebuilt_yet', { session_id: facts.sessionId, code: woken.code });
}

/** The newest that is still kept, and that a host could restore, or whose workspace it could have; undefined where there is none. */
async function originOf(
  { row, lineage, restorePoints }: SessionRuntime,
  env: Env,
  reason: RebuildReason,
): Promise<Origin | undefined> {
  const { tenant, subject, pool, hostId } = row.record.facts;
  const except = reason === 'host_lost' ? [hostId] : [];
  const unfit: Origin[] = [];
  for (const { isOwn, takenAtMs, snapshot: point } of lineage.ancestors) {
    const { snapshotId, requirements: requires } = point;
    const named =
      isOwn || restorePoints.find(snapshotId) !== undefined
        ? undefined
        : await env.SNAPSHOT_INDEX.getByName(tenant).find(subject, snapshotId);
    if (named?.ok === false) continue;
    const origin = { point, takenAtMs: takenAtMs ?? named?.value.createdAtMs ?? 0 };
    const isFit = await env.POOL.getByName(pool).mayRestore({ image: requires.image, except, requires });
    if (isFit) return { ...origin, isRescue: false };
    unfit.push({ ...origin, isRescue: true });
  }
  for (const origin of unfit) if (await hasWorkspace(env, { tenant, ...origin.point })) return origin;
  return undefined;
}

function leaveHost(runtime: SessionRuntime, reason: RebuildReason, origin: Origin | undefined): void {
  const { row, executions, sandbox, suspension, transfers, pausing } = runtime;
  const { facts, pausedAtMs, expiresAtMs } = row.record;
  const { sessionId: session_id, hostId: from_host_id } = facts;
  logWarning('session_leaves_host', { session_id, reason });
  const why = failure('host_lost', 'the host of the session is gone');
  if (origin !== undefined) {
    const pausedMs = pausedAtMs === null ? 0 : Math.max(0, Date.now() - pausedAtMs);
    row.move('suspended', {
      snapshot: {
        ...standingAt(row.record, origin.point),
        rescue: origin.isRescue ? { image: facts.image, imageDigest: facts.imageDigest } : null,
      },
      shell: origin.isRescue ? null : origin.point.shell,
      stateLost: true,
      pausedAtMs: null,
      linkDownAtMs: null,
      expiresAtMs: expiresAtMs === null ? null : expiresAtMs + pausedMs,
    });
  }
  runtime.events.record({
    type: 'session.host_lost',
    data: {
      state: row.record.state,
      host_id: null,
      from_host_id,
      snapshot_id: origin?.point.snapshotId ?? null,
      snapshot_created_at: origin === undefined ? null : new Date(origin.takenAtMs).toISOString(),
    },
  });
  sandbox.cancelAttach(why);
  sandbox.abandon(reason);
  transfers.endAll(why);
  for (const record of executions.open.slice()) {
    if (isToBeSent(record)) continue;
    executions.answer(record, () => why);
    executions.end(record, { status: 'unknown', reason });
  }
  // The next host would be asked to do what this one was, and calls would wait for it.
  pausing.cancel(why);
  suspension.cancel(why);
  if (origin !== undefined) {
    // Should it live after all, it is told to end.
    sandbox.leaveHost().catch((error: unknown) => {
      logWarning('host_not_told', { session_id, detail: messageOf(error) });
    });
  }
  runtime.moved();
}
