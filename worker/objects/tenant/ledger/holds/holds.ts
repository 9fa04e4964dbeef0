/** How much of the tenant's storage is held, of all of it and by each subject: kept in memory, made from the rows at the start. */
import type { HoldRow, HoldStore } from './store.ts';

/** By then no late word of a hold comes any more that was given back. */
const GIVEN_BACK_KEPT_MS = 2 * 86_400_000;

/**
 * What one thing takes of the storage. Absolute, so that a repeated or a lost word changes nothing: the bytes that it may
 * take at most while it is made, those that it takes afterwards, 0 when it is gone.
 */
export interface StorageHold {
  /** Names the thing among all of the tenant. */
  id: string;
  subject: string;
  bytes: number;
  /** Grows with each word about the thing: a late one does not undo a later one. */
  n: number;
  /** The session that it is a part of, whose budget then counts too. */
  sessionId?: string;
  /** The bytes are there already, so they count whatever the limits are. */
  isStored?: boolean;
}

export class Holds {
  readonly #store: HoldStore;
  readonly #bySubject = new Map<string, number>();
  #bytes = 0;

  constructor(store: HoldStore) {
    this.#store = store;
    for (const { subject, bytes } of store.sums()) this.#add(subject, bytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  of(subject: string): number {
    return this.#bySubject.get(subject) ?? 0;
  }

  find(id: string): HoldRow | undefined {
    return this.#store.find(id);
  }

  put({ id, subject, bytes, n }: StorageHold, nowMs: number): void {
    const before = this.#store.find(id);
    if (before !== undefined) this.#add(before.subject, -before.bytes);
    this.#add(subject, bytes);
    this.#store.put(id, { subject, bytes, n }, nowMs);
    if (bytes === 0) this.#store.forgetGivenBackBefore(nowMs - GIVEN_BACK_KEPT_MS);
  }

  #add(subject: string, bytes: number): void {
    const left = this.of(subject) + bytes;
    if (left === 0) this.#bySubject.delete(subject);
    else this.#bySubject.set(subject, left);
    this.#bytes += bytes;
  }
}

/** The hold of the outputs of a session, all of them together. */
export function outputsHoldId(sessionId: string): string {
  return `outputs:${sessionId}`;
}
