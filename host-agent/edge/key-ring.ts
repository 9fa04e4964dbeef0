/** The edge's keys as this host believes them: of a set signed by the pinned root key, and never of an older one. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type KeySet, liveKeys, verifyKeySet } from '../../shared/key-set.ts';
import type { Journal } from '../journal/journal.ts';

export class KeyRing {
  readonly #root: CryptoKey;
  readonly #issuer: string;
  readonly #journal: Journal;
  #keySet: KeySet | null = null;
  #live: { atS: number; keys: ReadonlyMap<string, CryptoKey> } = { atS: -1, keys: new Map() };

  constructor(pinned: { root: CryptoKey; issuer: string; journal: Journal }) {
    this.#root = pinned.root;
    this.#issuer = pinned.issuer;
    this.#journal = pinned.journal;
  }

  /** Takes a set at least as new as every one before; a newer one is on disk before it counts. */
  async accept(token: string): Promise<Outcome<{ version: number }>> {
    const pinnedVersion = Math.max(this.#journal.keySet?.version ?? 1, this.#keySet?.version ?? 1);
    const verified = await verifyKeySet(token, this.#root, pinnedVersion);
    if (!verified.ok) return verified;
    const { version, iss } = verified.value;
    if (iss !== this.#issuer) return failure('grant_invalid', 'the key set is of another edge');
    if (this.#journal.keySet === null || version > this.#journal.keySet.version) {
      const journaled = await this.#journal.keySetAccepted(version, token);
      if (!journaled.ok) return journaled;
    }
    this.#keySet = verified.value;
    this.#live = { atS: -1, keys: new Map() };
    return success({ version });
  }

  /** Keys that may sign grants now. Validity is judged to the second, so they are imported once a second at most. */
  async grantKeys(nowS: number): Promise<ReadonlyMap<string, CryptoKey>> {
    if (this.#keySet === null) return new Map();
    if (this.#live.atS !== nowS) {
      this.#live = { atS: nowS, keys: await liveKeys(this.#keySet.grant_keys, nowS) };
    }
    return this.#live.keys;
  }
}
