/**
 * What this isolate knows of pools with many hosts. Placing there needs no word with the pool's object: a few hosts are
 * drawn from a picture that is some seconds old, and the host itself decides. A small pool is asked each time.
 */
import { type Outcome, success } from '../../shared/errors.ts';
import { choosePlacement } from '../objects/pool/placement.ts';
import type { Placement, PlacementWish } from '../objects/pool/port.ts';
import type { HostRow } from '../objects/pool/store.ts';

/** From here on the pool's object would have more to do with every create than it should. */
export const MANY_HOSTS = 32;
export const PICTURE_LIVES_MS = 3_000;
const MAX_POOLS = 64;

interface Picture {
  takenAtMs: number;
  hosts: HostRow[];
}

export class PoolPictures {
  readonly #pictures = new Map<string, Promise<Outcome<Picture>>>();
  /** Pools that had many hosts when they were asked last. */
  readonly #large = new Set<string>();

  isLarge(pool: string): boolean {
    return this.#large.has(pool);
  }

  /** The pool's object said how many hosts it has. */
  heardOf(pool: string, hosts: number): void {
    if (hosts < MANY_HOSTS || this.#large.size >= MAX_POOLS) this.#large.delete(pool);
    else this.#large.add(pool);
  }

  async place(
    pool: string,
    wish: PlacementWish,
    source: { nowMs: number; random: () => number; hosts: () => Promise<Outcome<HostRow[]>> },
  ): Promise<Outcome<Placement>> {
    const picture = await this.#pictureOf(pool, source);
    if (!picture.ok) return picture;
    const { hosts } = picture.value;
    this.heardOf(pool, hosts.length);
    const placement = choosePlacement(hosts, wish, source.random);
    if (!placement.ok) return placement;
    // Counted here until the next picture, so that one isolate does not send all that it has to one host.
    const host = hosts.find(({ host_id }) => host_id === placement.value.hostId);
    if (host !== undefined) host.placed += 1;
    return placement;
  }

  /** It has no room, whatever the picture says: nothing more is sent there until the next one. */
  async refusedBy(pool: string, hostId: string): Promise<void> {
    const picture = await this.#pictures.get(pool);
    if (picture?.ok !== true) return;
    const host = picture.value.hosts.find(({ host_id }) => host_id === hostId);
    if (host !== undefined) host.placed = host.capacity;
  }

  async #pictureOf(
    pool: string,
    { nowMs, hosts }: { nowMs: number; hosts: () => Promise<Outcome<HostRow[]>> },
  ): Promise<Outcome<Picture>> {
    const known = await this.#pictures.get(pool);
    if (known?.ok === true && nowMs - known.value.takenAtMs < PICTURE_LIVES_MS) return known;
    // Asked for once by all who come meanwhile.
    const taking = hosts().then((found): Outcome<Picture> => {
      return found.ok ? success({ takenAtMs: nowMs, hosts: found.value }) : found;
    });
    this.#pictures.set(pool, taking);
    return taking;
  }
}
