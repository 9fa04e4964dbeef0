/**
 * The snapshots that the present state of a session comes from, for one that is to be rebuilt where its host is lost. What a
 * rollback gave up is none of them. The image of its last suspension is kept for that, until there is a newer one of those.
 */
import type { PointSnapshot } from '../restore-points/store.ts';
import type { HeldSnapshot } from '../suspension/held-snapshot.ts';
import { type Ancestor, LineageStore } from './store.ts';

const MAX_ANCESTORS = 16;

export interface LineagePort {
  /** Whether the session asked for it. */
  isKept(): boolean;
  /** Nothing needs the snapshot any more. */
  release(snapshotId: string): Promise<void>;
}

export class Lineage {
  readonly #store: LineageStore;
  readonly #port: LineagePort;

  constructor(context: DurableObjectState, port: LineagePort) {
    this.#store = new LineageStore(context);
    this.#port = port;
  }

  /** Newest first. */
  get ancestors(): readonly Ancestor[] {
    return this.#port.isKept() ? this.#store.all() : [];
  }

  /** One was made beside the session, which goes on from there. */
  made(snapshot: PointSnapshot): void {
    if (!this.#port.isKept()) return;
    this.#add({ isOwn: false, takenAtMs: Date.now(), snapshot: pointOf(snapshot) });
  }

  /** The session goes on from this one. */
  restored(held: HeldSnapshot): void {
    if (!this.#port.isKept()) {
      if (held.isOwn) void this.#port.release(held.snapshotId);
      return;
    }
    const snapshot = pointOf(held);
    if (held.isOwn) {
      void this.giveWay();
      this.#add({ isOwn: true, takenAtMs: held.atMs, snapshot });
      return;
    }
    const all = this.#store.all();
    const found = all.findIndex((ancestor) => ancestor.snapshot.snapshotId === held.snapshotId);
    for (const ancestor of found === -1 ? all : all.slice(0, found)) void this.#remove(ancestor);
    if (found === -1) this.#add({ isOwn: false, takenAtMs: null, snapshot });
  }

  /** The image of a suspension that is kept for this alone. */
  find(snapshotId: string): PointSnapshot | undefined {
    return this.ancestors.find(({ isOwn, snapshot }) => isOwn && snapshot.snapshotId === snapshotId)
      ?.snapshot;
  }

  /** Lets go of what is kept for this alone; false where that is nothing. */
  async giveWay(): Promise<boolean> {
    const own = this.#store.all().filter(({ isOwn }) => isOwn);
    await Promise.all(own.map((ancestor) => this.#remove(ancestor)));
    return own.length > 0;
  }

  #add(ancestor: Omit<Ancestor, 'place'>): void {
    this.#store.add(ancestor);
    for (const oldest of this.#store.all().slice(MAX_ANCESTORS)) void this.#remove(oldest);
  }

  async #remove({ place, isOwn, snapshot }: Ancestor): Promise<void> {
    this.#store.delete(place);
    if (isOwn) await this.#port.release(snapshot.snapshotId);
  }
}

function pointOf(snapshot: PointSnapshot): PointSnapshot {
  const { snapshotId, manifestSha256, requirements, generation, bytes, storedBytes, shell } = snapshot;
  return { snapshotId, manifestSha256, requirements, generation, bytes, storedBytes, shell };
}
