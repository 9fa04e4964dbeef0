/** Places a session: from this isolate's picture of the pool where it has many hosts, by the pool's own word otherwise. */
import { type Outcome, success } from '../../shared/errors.ts';
import { type ObjectCalls, SAFE } from '../objects/object-calls.ts';
import type { Placement, PlacementWish, PoolPort } from '../objects/pool/port.ts';
import { PoolPictures } from './pool-pictures.ts';

const pictures = new PoolPictures();

export async function place(
  pool: { name: string; calls: ObjectCalls<PoolPort> },
  wish: PlacementWish & { sessionId: string },
): Promise<Outcome<Placement>> {
  const { name, calls } = pool;
  if (pictures.isLarge(name)) {
    const drawn = await pictures.place(name, wish, {
      nowMs: Date.now(),
      random: Math.random,
      hosts: () => calls((stub) => stub.picture(), SAFE),
    });
    if (drawn.ok) return drawn;
    // The picture may be old: the pool knows of the last free places.
  }
  const placed = await calls((stub) => stub.place(wish), SAFE);
  if (!placed.ok) return placed;
  const { hosts, ...placement } = placed.value;
  pictures.heardOf(name, hosts);
  return success(placement);
}

/** A host had no room for what it was asked: this isolate asks it no more for a while. */
export function refusedBy(pool: string, hostId: string): void {
  pictures.refusedBy(pool, hostId);
}

/** Whether the pool's object keeps a place for a session that is on its way. */
export function keepsPlaces(pool: string): boolean {
  return !pictures.isLarge(pool);
}
