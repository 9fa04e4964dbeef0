/**
 * Sandboxes that are ready before anybody asks, never used by anybody: each is handed over once, and what comes back is
 * destroyed and not put here again. How many there are follows what was asked for lately.
 */
import type { ResourceLimits } from '../../shared/session.ts';
import { Demand } from './demand.ts';

/** Sizes are fixed when a sandbox boots, so one fits only who asks for exactly this. */
export interface WarmKind {
  imageDigest: string;
  limits: ResourceLimits;
}

export interface WarmItem {
  /** Settles when it can no longer be used. */
  lost: Promise<unknown>;
}

export interface WarmPoolSize {
  /** Kept of the usual kind, whatever was asked for. */
  floor: number;
  /** Of all kinds together. */
  ceiling: number;
  /** Made at the same time. */
  parallel: number;
}

export interface WarmPoolOptions<Item extends WarmItem> extends WarmPoolSize {
  /** The kind that most ask for; undefined where there is none. */
  usualKind: () => Promise<WarmKind | undefined>;
  /** Undefined where it could not be made. Never rejects. */
  make: (kind: WarmKind) => Promise<Item | undefined>;
  discard: (item: Item) => Promise<void>;
  /** Asked just before one is handed over: one that died while it stood still has not told so. Never rejects. */
  isUsable: (item: Item) => Promise<boolean>;
  /** False while somebody waits for a sandbox that is not ready: that one goes first. */
  mayMake: () => boolean;
  nowMs?: () => number;
}

/** Kinds whose demand is remembered. */
const MAX_KINDS = 16;
const REVIEW_INTERVAL_MS = 10_000;
/** A host that could not make one is not asked again at once. */
const FAILURE_PAUSE_MS = 10_000;

interface Shelf<Item> {
  kind: WarmKind;
  ready: Item[];
  making: number;
  demand: Demand;
  floor: number;
}

export class WarmPool<Item extends WarmItem> {
  readonly #options: WarmPoolOptions<Item>;
  readonly #nowMs: () => number;
  /** The kind that was asked for last is the last one. */
  readonly #shelves = new Map<string, Shelf<Item>>();
  readonly #making = new Set<Promise<void>>();
  readonly #discarding = new Set<Promise<void>>();
  #review: NodeJS.Timeout | undefined;
  #pausedUntilMs = 0;
  #stopped = false;

  constructor(options: WarmPoolOptions<Item>) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  get readyCount(): number {
    return this.#sum(({ ready }) => ready.length);
  }

  get makingCount(): number {
    return this.#making.size;
  }

  async start(): Promise<void> {
    const usual = await this.#options.usualKind();
    if (usual !== undefined) this.#shelfOf(usual).floor = this.#options.floor;
    if (this.#stopped) return;
    this.#review = setInterval(() => this.#shrinkAndRefill(), REVIEW_INTERVAL_MS).unref();
    this.refill();
  }

  /** Hands one over, if one is ready that can be used, and has another one made. */
  async take(kind: WarmKind): Promise<Item | undefined> {
    if (this.#stopped) return undefined;
    const shelf = this.#shelfOf(kind);
    shelf.demand.record(this.#nowMs());
    const item = await this.#firstUsable(shelf);
    queueMicrotask(() => this.refill());
    return item;
  }

  /** Starts what is missing, as far as the bounds allow. */
  refill(): void {
    while (
      !this.#stopped &&
      this.#making.size < this.#options.parallel &&
      this.#nowMs() >= this.#pausedUntilMs &&
      this.readyCount + this.#making.size < this.#options.ceiling &&
      this.#options.mayMake()
    ) {
      const shelf = this.#neediest();
      if (shelf === undefined) return;
      this.#makeFor(shelf);
    }
  }

  /** Gives room back: up to so many that are ready are destroyed, those of the rarest kind first. */
  async evict(count: number): Promise<number> {
    let evicted = 0;
    const discarded: Promise<void>[] = [];
    for (const shelf of this.#shelves.values()) {
      while (evicted < count) {
        const item = shelf.ready.shift();
        if (item === undefined) break;
        evicted += 1;
        discarded.push(this.#discard(item));
      }
    }
    // What had to go would otherwise be made again at once.
    if (evicted > 0) this.#pausedUntilMs = this.#nowMs() + FAILURE_PAUSE_MS;
    await Promise.all(discarded);
    return evicted;
  }

  /** Of the kinds that can no longer be had, those that are ready are destroyed and no more are made. */
  keepOnly(canBeHad: (kind: WarmKind) => boolean): void {
    for (const [key, { kind, ready }] of this.#shelves) {
      if (canBeHad(kind)) continue;
      this.#shelves.delete(key);
      for (const item of ready.splice(0)) void this.#discard(item);
    }
    void this.#options.usualKind().then((usual) => {
      if (this.#stopped || usual === undefined) return;
      for (const shelf of this.#shelves.values()) shelf.floor = 0;
      this.#shelfOf(usual).floor = this.#options.floor;
      this.refill();
    });
  }

  /** Settles when nothing more is being made and all that was ready is gone. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#review);
    for (const { ready } of this.#shelves.values())
      for (const item of ready.splice(0)) void this.#discard(item);
    await Promise.all(this.#making);
    await Promise.all(this.#discarding);
  }

  async #firstUsable({ ready }: Shelf<Item>): Promise<Item | undefined> {
    for (let item = ready.shift(); item !== undefined; item = ready.shift()) {
      if (await this.#options.isUsable(item)) return item;
      void this.#discard(item);
    }
    return undefined;
  }

  #shelfOf(kind: WarmKind): Shelf<Item> {
    const key = keyOf(kind);
    const shelf = this.#shelves.get(key) ?? { kind, ready: [], making: 0, demand: new Demand(), floor: 0 };
    this.#shelves.delete(key);
    this.#shelves.set(key, shelf);
    for (const [oldest, { ready, making, floor }] of this.#shelves) {
      if (this.#shelves.size <= MAX_KINDS) break;
      if (floor > 0 || making > 0) continue;
      this.#shelves.delete(oldest);
      for (const item of ready) void this.#discard(item);
    }
    return shelf;
  }

  #targetOf({ floor, demand }: Shelf<Item>): number {
    return Math.min(this.#options.ceiling, Math.max(floor, demand.burst(this.#nowMs())));
  }

  /** The one that lacks most; where two lack as many, that asked for last. */
  #neediest(): Shelf<Item> | undefined {
    let neediest: Shelf<Item> | undefined;
    let most = 1;
    for (const shelf of this.#shelves.values()) {
      const missing = this.#targetOf(shelf) - shelf.ready.length - shelf.making;
      if (missing < most) continue;
      most = missing;
      neediest = shelf;
    }
    return neediest;
  }

  #makeFor(shelf: Shelf<Item>): void {
    shelf.making += 1;
    const made = this.#make(shelf);
    this.#making.add(made);
    void made.finally(() => {
      this.#making.delete(made);
      this.refill();
    });
  }

  async #make(shelf: Shelf<Item>): Promise<void> {
    const item = await this.#options.make(shelf.kind);
    shelf.making -= 1;
    if (item === undefined) {
      // A kind that this host cannot make, such as one of an image that is gone, must not keep the others waiting.
      shelf.demand = new Demand();
      this.#pausedUntilMs = this.#nowMs() + FAILURE_PAUSE_MS;
      return;
    }
    const isWanted = this.#shelves.get(keyOf(shelf.kind)) === shelf;
    if (this.#stopped || !isWanted) return this.#discard(item);
    shelf.ready.push(item);
    void item.lost.then(() => {
      const at = shelf.ready.indexOf(item);
      if (at >= 0) shelf.ready.splice(at, 1);
    });
  }

  #discard(item: Item): Promise<void> {
    const discarding = this.#options.discard(item).finally(() => this.#discarding.delete(discarding));
    this.#discarding.add(discarding);
    return discarding;
  }

  #shrinkAndRefill(): void {
    for (const shelf of this.#shelves.values()) {
      const surplus = shelf.ready.length - this.#targetOf(shelf);
      for (const item of surplus > 0 ? shelf.ready.splice(0, surplus) : []) void this.#discard(item);
    }
    this.refill();
  }

  #sum(count: (shelf: Shelf<Item>) => number): number {
    return [...this.#shelves.values()].reduce((total, shelf) => total + count(shelf), 0);
  }
}

function keyOf({ imageDigest, limits }: WarmKind): string {
  const sizes = Object.entries(limits).toSorted(([left], [right]) => (left < right ? -1 : 1));
  return `${imageDigest} ${JSON.stringify(sizes)}`;
}
