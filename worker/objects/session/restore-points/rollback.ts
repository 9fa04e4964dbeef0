/** Takes a session back to a snapshot of its own: what it was since then is given up, its history is not. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Rollback } from '../../../../shared/rollback.ts';
import type { Env } from '../../../env.ts';
import type { Caller } from '../../caller.ts';
import { logWarning } from '../../log.ts';
import { notNow } from '../lifecycle/pausing.ts';
import { type ExecutionRecord, isToBeSent, type SessionRecord } from '../rows/records.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { HeldSnapshot } from '../suspension/held-snapshot.ts';
import type { PointSnapshot } from './store.ts';

/** A named snapshot of this session, or the one that was made before one of its executions. */
export async function rollbackTarget(
  { row, executions, restorePoints }: SessionRuntime,
  env: Env,
  { caller, to }: { caller: Caller; to: Rollback },
): Promise<Outcome<PointSnapshot>> {
  if (to.execution_id !== undefined) {
    const record = executions.find(to.execution_id);
    if (record === undefined) return failure('not_found', 'no such execution');
    const point = restorePoints.before(record);
    return point === undefined
      ? failure('not_found', 'no snapshot is kept of the time before this execution')
      : success(point);
  }
  const snapshotId = to.snapshot_id ?? '';
  const found = await env.SNAPSHOT_INDEX.getByName(caller.tenant).find(caller.subject, snapshotId);
  if (!found.ok) return found;
  const { facts } = found.value;
  if (facts.sessionId === row.record.facts.sessionId) return success(facts);
  return failure('not_found', 'no such snapshot of this session');
}

/** Calls that run are interrupted; what waits runs there. */
export async function rollBack(runtime: SessionRuntime, to: PointSnapshot): Promise<Outcome<null>> {
  const { row, suspension } = runtime;
  const { state, sandbox } = row.record;
  if (state !== 'running' && state !== 'paused' && state !== 'suspended') return notNow(row);
  if (suspension.isPending || sandbox === 'attaching') {
    return failure('session_not_running', 'a sandbox, or a snapshot of it, is being made', {
      retry_after_s: 1,
    });
  }
  return goBack(runtime, to);
}

/** Of an execution that failed, and asked for it. */
export async function takeBack(runtime: SessionRuntime, record: ExecutionRecord): Promise<void> {
  const point = runtime.restorePoints.before(record);
  const back = point === undefined ? undefined : await goBack(runtime, point);
  // Where it is not woken now, the next call wakes it there.
  if (back?.ok === false) {
    const { sessionId: session_id } = runtime.row.record.facts;
    logWarning('not_woken_after_rollback', { session_id, code: back.code });
  }
}

/** The session is at the snapshot as soon as its row says so, which is at once; it wakes there, now or with the next call. */
async function goBack(runtime: SessionRuntime, point: PointSnapshot): Promise<Outcome<null>> {
  const { row, executions, sandbox, suspension, waking } = runtime;
  const { state, snapshot: before } = row.record;
  const snapshot = standingAt(row.record, point);
  const { shell } = point;
  if (state === 'suspended') row.patch({ snapshot, shell });
  else row.move('suspended', { snapshot, shell, pausedAtMs: null, linkDownAtMs: null });
  suspension.cancel(failure('session_not_running', 'the session was taken back to a snapshot'));
  for (const record of executions.open.slice()) {
    if (!isToBeSent(record)) executions.end(record, { status: 'interrupted', reason: 'rolled_back' });
  }
  runtime.transfers.endAll(failure('transfer_failed', 'the session was taken back to a snapshot'));
  if (before?.isOwn === true) void suspension.records.release(before.snapshotId);
  sandbox.abandon('rolled_back');
  if (state !== 'suspended') await sandbox.leaveHost();
  const woken = await waking.wake();
  return woken.ok ? success(null) : woken;
}

/** What the next sandbox of the session is made of, for it to be where it was then. */
export function standingAt({ facts, generation }: SessionRecord, point: PointSnapshot): HeldSnapshot {
  const { snapshotId, manifestSha256, requirements, bytes, storedBytes, shell } = point;
  return {
    snapshotId,
    manifestSha256,
    sessionId: facts.sessionId,
    requirements,
    executions: [],
    forks: [],
    // It never falls, so that the guest can tell each of its lives from every other.
    generation: Math.max(generation, point.generation),
    bytes,
    storedBytes,
    shell,
    atMs: Date.now(),
    isOwn: false,
    isStopped: false,
    rescue: null,
    wake: null,
  };
}
