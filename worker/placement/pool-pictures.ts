/**
 * What this isolate knows of pools with many hosts. Placing there needs no word with the pool's object: a few hosts are
 * drawn from a picture that is some seconds old, and the host itself decides. A small pool is asked each time.
 */
import { type Outcome, success } from '../../shared/errors.ts';
import { answerWithin } from '../middleware/answer-within.ts';
import { choosePlacement } from '../objects/pool/placement.ts';
import type { Placement, PlacementWish } from '../objects/pool/port.ts';
import type { HostRow } from '../objects/pool/store.ts';

/** From here on the pool's object would have more to do with every create than it should. */
export const MANY_HOSTS = 32;
export const PICTURE_LIVES_MS = 3_000;
const MAX_POOLS = 64;
/** A picture comes in some milliseconds. Who asked for it may be gone, and its answer with it. */
const JOIN_MS = 1_000;

interface Picture {
  takenAtMs: number;
  hosts: HostRow[];
}

export class PoolPictures {
  readonly #pictures = new Map<string, Picture>();
  readonly #asked = new Map<string, Promise<Outcome<Picture>>>();
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
  refusedBy(pool: string, hostId: string): void {
    const host = this.#pictures.get(pool)?.hosts.find(({ host_id }) => host_id === hostId);
    if (host !== undefined) host.placed = host.capacity;
  }

  async #pictureOf(
    pool: string,
    { nowMs, hosts }: { nowMs: number; hosts: () => Promise<Outcome<HostRow[]>> },
  ): Promise<Outcome<Picture>> {
    const known = this.#pictures.get(pool);
    if (known !== undefined && nowMs - known.takenAtMs < PICTURE_LIVES_MS) return success(known);
    // Asked for once by all who come meanwhile.
    let silent: Promise<Outcome<Picture>> | undefined;
    for (let asked = this.#asked.get(pool); asked !== undefined; asked = this.#asked.get(pool)) {
      if (asked === silent) break;
      const joined = await answerWithin(asked, JOIN_MS);
      if (joined !== undefined) return joined;
      silent = asked;
    }
    const asking = hosts().then((found): Outcome<Picture> => {
      if (!found.ok) return found;
      const picture = { takenAtMs: nowMs, hosts: found.value };
      // A question that was given up may be answered after a later one.
      if ((this.#pictures.get(pool)?.takenAtMs ?? 0) <= nowMs) this.#pictures.set(pool, picture);
      return success(picture);
    });
    const asked = asking.finally(() => {
      if (this.#asked.get(pool) === asked) this.#asked.delete(pool);
    });
    this.#asked.set(pool, asked);
    return asked;
  }
}
