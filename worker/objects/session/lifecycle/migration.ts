/** Moves a session to another host of its pool, with what runs in it: suspended here, and brought back there. */
import { failure, type Outcome } from '../../../../shared/errors.ts';
import type { Env } from '../../../env.ts';
import type { SessionRuntime } from '../runtime.ts';
import { notNow } from './pausing.ts';

export async function migrateSession(runtime: SessionRuntime, env: Env): Promise<Outcome<null>> {
  const { row, suspension, waking } = runtime;
  const woken = await waking.wake();
  if (!woken.ok) return woken;
  if (row.record.state !== 'running') return notNow(row);
  const { hostId, imageDigest: image, sessionId, pool } = row.record.facts;
  // Before anything is moved: whether there is a host to move to.
  const wish = { image, sessionId, except: [hostId], like: hostId };
  const placed = await env.POOL.getByName(pool).place(wish);
  if (!placed.ok) return placed;
  const moved = await waking.leaving(hostId, async () => {
    const suspended = await suspension.suspend();
    return suspended.ok ? waking.wake() : suspended;
  });
  const { hostId: host_id } = row.record.facts;
  if (moved.ok && host_id !== hostId) {
    const { state } = row.record;
    runtime.events.record({ type: 'session.migrated', data: { state, host_id, from_host_id: hostId } });
  }
  if (!moved.ok || host_id !== hostId) return moved;
  return failure('no_host_available', 'no other host took the session; it goes on where it was');
}
