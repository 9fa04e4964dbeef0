/**
 * Uploads under way in this isolate. A part of one in memory takes a place of the few that the requests of all tenants share;
 * an upload of which only little is in memory, because it is about to begin a part or its client takes its time, holds none.
 */
import { failure, type Outcome, success } from '../../shared/errors.ts';

/** Of the memory of an isolate: each place is for a part. */
const MAX_PLACES = 8;
/** So that no tenant takes all places for itself. */
const MAX_PLACES_OF_TENANT = 4;
/** Uploads in all, whether they hold a place or not. */
const MAX_OPEN = 64;
const MAX_OPEN_OF_TENANT = 16;
/** What an upload may have in memory without a place. */
export const PLACELESS_BYTES = 64 * 1024;
/** A place is waited for, because most uploads are short: by one that is about to begin, and by one in its midst. */
const WAIT_MS = 10_000;
const WAIT_IN_MIDST_MS = 300_000;
const LOOK_MS = 100;
/** Longer than this no upload holds a place for one part, or is open with next to nothing of one, while others wait for that. */
const PART_MS = 120_000;
/** One place after the other is given up: whoever waits needs a moment to take it. */
const YIELD_MS = 5_000;
/** Who waits has said so within this time. */
const WAITS_MS = 1_000;
/** A request whose client left may be cut off without a word: it is gone when nothing was heard of it for so long. */
const LOST_AFTER_MS = 60_000;
/** Those who are refused at one moment do not come back at one moment. */
const RETRY_AFTER_S = { least: 5, spread: 10 };

const open = new Set<OpenUpload>();
/** When an upload of the tenant waited last for a place that others hold. */
const waitedAtMs = new Map<string, number>();
let yieldedAtMs = Number.NEGATIVE_INFINITY;

/** Waits until there is room for an upload of so many bytes, and takes none of it: for what is better refused at once. */
export function uploadRoom(tenant: string, bytes: number): Promise<Outcome<null>> {
  return whenever(tenant, WAIT_MS, () => mayOpen(tenant) && (bytes <= PLACELESS_BYTES || hasPlace(tenant)));
}

export async function openUpload(tenant: string): Promise<Outcome<OpenUpload>> {
  const room = await whenever(tenant, WAIT_MS, () => mayOpen(tenant));
  return room.ok ? success(new OpenUpload(tenant)) : room;
}

export class OpenUpload {
  readonly tenant: string;
  #heardAtMs = Date.now();
  #holdsPlace = false;
  /** Since when it has its place, or none. */
  #sinceMs = Date.now();

  constructor(tenant: string) {
    this.tenant = tenant;
    open.add(this);
  }

  get holdsPlace(): boolean {
    return this.#holdsPlace;
  }

  /** Whether it has to end, because it does not get on with its part and somebody else waits for what it takes up. */
  mustYield(): boolean {
    const nowMs = Date.now();
    if (nowMs - this.#sinceMs <= PART_MS) return false;
    if (nowMs - yieldedAtMs <= YIELD_MS || !this.#isWantedAt(nowMs)) return false;
    yieldedAtMs = nowMs;
    return true;
  }

  #isWantedAt(nowMs: number): boolean {
    return [...waitedAtMs].some(
      ([tenant, atMs]) => nowMs - atMs <= WAITS_MS && this.#isFirstToYieldTo(tenant),
    );
  }

  #isFirstToYieldTo(tenant: string): boolean {
    const inTheWay = this.#holdsPlace ? placesInTheWayOf(tenant) : openInTheWayOf(tenant);
    return inTheWay.toSorted((one, other) => one.#sinceMs - other.#sinceMs)[0] === this;
  }

  isLost(nowMs: number): boolean {
    return this.#heardAtMs < nowMs - LOST_AFTER_MS;
  }

  /** Called as the upload goes on; one that was not heard of for a minute is taken for gone. */
  heard(): void {
    this.#heardAtMs = Date.now();
  }

  /** Before more of it comes into memory. */
  async takePlace(): Promise<Outcome<null>> {
    if (this.holdsPlace) return success(null);
    const given = await whenever(this.tenant, WAIT_IN_MIDST_MS, () => {
      this.heard();
      return hasPlace(this.tenant);
    });
    if (given.ok) this.#stands(true);
    return given;
  }

  /** Its part is stored: only bytes flow until there is another one. */
  giveBackPlace(): void {
    if (this.#holdsPlace) this.#stands(false);
  }

  #stands(holdsPlace: boolean): void {
    this.#holdsPlace = holdsPlace;
    this.#sinceMs = Date.now();
  }

  leave(): void {
    open.delete(this);
  }
}

async function whenever(tenant: string, waitMs: number, isTime: () => boolean): Promise<Outcome<null>> {
  const untilMs = Date.now() + waitMs;
  while (!isTime()) {
    if (Date.now() >= untilMs) {
      return failure('overloaded', 'too many uploads are open here; this one was not stored', {
        retry_after_s: RETRY_AFTER_S.least + Math.floor(Math.random() * RETRY_AFTER_S.spread),
      });
    }
    waitedAtMs.delete(tenant);
    waitedAtMs.set(tenant, Date.now());
    for (const [first, atMs] of waitedAtMs) {
      if (Date.now() - atMs <= WAITS_MS) break;
      waitedAtMs.delete(first);
    }
    // Looked at again and again: what another request resolves may belong to one that is gone.
    await scheduler.wait(LOOK_MS);
  }
  waitedAtMs.delete(tenant);
  return success(null);
}

/** Where the places of all are not used up, a tenant is only in its own way. */
function placesInTheWayOf(tenant: string): OpenUpload[] {
  const held = [...open].filter(({ holdsPlace }) => holdsPlace);
  return held.length >= MAX_PLACES ? held : held.filter((upload) => upload.tenant === tenant);
}

/** The same of uploads that hold no place: they are in the way where no more of them may be open. */
function openInTheWayOf(tenant: string): OpenUpload[] {
  const placeless = [...open].filter(({ holdsPlace }) => !holdsPlace);
  if (open.size >= MAX_OPEN) return placeless;
  const own = placeless.filter((upload) => upload.tenant === tenant);
  return countOf(({ tenant: of }) => of === tenant) >= MAX_OPEN_OF_TENANT ? own : [];
}

function dropLost(): void {
  const nowMs = Date.now();
  for (const upload of open) if (upload.isLost(nowMs)) open.delete(upload);
}

function mayOpen(tenant: string): boolean {
  dropLost();
  return open.size < MAX_OPEN && countOf(({ tenant: of }) => of === tenant) < MAX_OPEN_OF_TENANT;
}

function hasPlace(tenant: string): boolean {
  dropLost();
  const ofTenant = countOf((upload) => upload.holdsPlace && upload.tenant === tenant);
  return placesHeld() < MAX_PLACES && ofTenant < MAX_PLACES_OF_TENANT;
}

function placesHeld(): number {
  return countOf(({ holdsPlace }) => holdsPlace);
}

function countOf(which: (upload: OpenUpload) => boolean): number {
  return [...open].filter(which).length;
}
