/** Moves a session to another host of its pool, with what runs in it: suspended here, and brought back there. */
import { type Outcome, success } from '../../../shared/errors.ts';
import type { Env } from '../../env.ts';
import { notNow } from './pausing.ts';
import type { SessionRuntime } from './runtime.ts';

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
  const suspended = await suspension.suspend();
  if (!suspended.ok) return suspended;
  const there = await waking.wake([hostId]);
  if (there.ok) return success(null);
  // Better where it was than nowhere.
  const here = await waking.wake();
  return here.ok ? there : here;
}
