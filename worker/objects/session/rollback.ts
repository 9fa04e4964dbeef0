/** Takes a session back to a snapshot of its own: what it was since then is given up, its history is not. */
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { SnapshotFacts } from '../snapshots/port.ts';
import { notNow } from './pausing.ts';
import { isToBeSent } from './records.ts';
import type { SessionRuntime } from './runtime.ts';

/** The session is at the snapshot as soon as its row says so; it wakes there, at once or with the next call. */
export async function rollBack(
  runtime: SessionRuntime,
  facts: Omit<SnapshotFacts, 'network' | 'environment'>,
): Promise<Outcome<null>> {
  const { row, executions, sandbox, suspension, waking } = runtime;
  const { state, facts: session, generation, snapshot: before } = row.record;
  if (facts.sessionId !== session.sessionId) return failure('not_found', 'no such snapshot of this session');
  if (state !== 'running' && state !== 'paused' && state !== 'suspended') return notNow(row);
  if (suspension.isPending || row.record.sandbox === 'attaching') {
    return failure('session_not_running', 'a sandbox, or a snapshot of it, is being made', {
      retry_after_s: 1,
    });
  }
  const { snapshotId, manifestSha256, requirements, bytes, storedBytes } = facts;
  const snapshot = {
    snapshotId,
    manifestSha256,
    sessionId: session.sessionId,
    requirements,
    executions: [],
    // It never falls, so that the guest can tell each of its lives from every other.
    generation: Math.max(generation, facts.generation),
    bytes,
    storedBytes,
    atMs: Date.now(),
    isOwn: false,
    wake: null,
  };
  if (state === 'suspended') row.patch({ snapshot });
  else row.move('suspended', { snapshot, pausedAtMs: null, linkDownAtMs: null });
  for (const record of executions.open.slice()) {
    if (!isToBeSent(record)) executions.end(record, { status: 'interrupted', reason: 'rolled_back' });
  }
  runtime.transfers.endAll(failure('transfer_failed', 'the session was taken back to a snapshot'));
  if (before?.isOwn === true) suspension.release(before.snapshotId);
  sandbox.abandon('rolled_back');
  await sandbox.forgetAtHost();
  const woken = await waking.wake();
  return woken.ok ? success(null) : woken;
}
