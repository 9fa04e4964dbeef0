/** The host of the session is to become empty: the session moves to another one, or into a snapshot where there is none. */
import type { Env } from '../../../env.ts';
import { logInfo } from '../../log.ts';
import type { SessionRuntime } from '../runtime.ts';
import { migrateSession } from './migration.ts';

/** What cannot be moved goes on where it is, and leaves the host by its own end. */
export async function leaveHost(runtime: SessionRuntime, env: Env): Promise<void> {
  const { row, suspension } = runtime;
  const { sessionId } = row.record.facts;
  const isPaused = row.record.state === 'paused';
  const moved = isPaused ? await suspension.suspend() : await migrateSession(runtime, env);
  const left = !moved.ok && maySuspend(runtime) ? await suspension.suspend() : moved;
  logInfo('session_leaves_draining_host', {
    session_id: sessionId,
    state: row.record.state,
    code: left.ok ? null : left.code,
  });
}

/** A call that runs is worth more than an empty host. */
function maySuspend({ row, executions, transfers }: SessionRuntime): boolean {
  return row.record.state === 'running' && executions.open.length === 0 && !transfers.isMoving;
}
