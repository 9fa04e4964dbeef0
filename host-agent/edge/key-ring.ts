/** The edge's keys as this host believes them: of a set signed by the pinned root key, and never of an older one. */
import { importPublicKey } from '../../shared/ed25519.ts';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import { type DatedKey, isLiveAt, verifyKeySet } from '../../shared/key-set.ts';
import type { Journal } from '../journal/journal.ts';

interface ImportedKey {
  dated: DatedKey;
  key: CryptoKey;
}

export class KeyRing {
  readonly #root: CryptoKey;
  readonly #issuer: string;
  readonly #journal: Journal;
  #version = 1;
  #grantKeys: readonly ImportedKey[] = [];
  #live: { atS: number; keys: ReadonlyMap<string, CryptoKey> } = { atS: -1, keys: new Map() };

  constructor(pinned: { root: CryptoKey; issuer: string; journal: Journal }) {
    this.#root = pinned.root;
    this.#issuer = pinned.issuer;
    this.#journal = pinned.journal;
  }

  /** Takes a set at least as new as every one before; a newer one is on disk before it counts. */
  async accept(token: string): Promise<Outcome<{ version: number }>> {
    const pinnedVersion = Math.max(this.#journal.keySet?.version ?? 1, this.#version);
    const verified = await verifyKeySet(token, this.#root, pinnedVersion);
    if (!verified.ok) return verified;
    const { version, iss } = verified.value;
    if (iss !== this.#issuer) return failure('grant_invalid', 'the key set is of another edge');
    if (this.#journal.keySet === null || version > this.#journal.keySet.version) {
      const journaled = await this.#journal.keySetAccepted(version, token);
      if (!journaled.ok) return journaled;
    }
    const imported = await importAll(verified.value.grant_keys);
    // A newer set may have come meanwhile.
    if (version < this.#version) return success({ version });
    this.#version = version;
    this.#grantKeys = imported;
    this.#live = { atS: -1, keys: new Map() };
    return success({ version });
  }

  /** Keys that may sign grants now. Validity is judged to the second. */
  grantKeys(nowS: number): ReadonlyMap<string, CryptoKey> {
    if (this.#live.atS !== nowS) {
      const live = this.#grantKeys.filter(({ dated }) => isLiveAt(dated, nowS));
      this.#live = { atS: nowS, keys: new Map(live.map(({ dated, key }) => [dated.kid, key])) };
    }
    return this.#live.keys;
  }
}

async function importAll(grantKeys: readonly DatedKey[]): Promise<ImportedKey[]> {
  const imported: ImportedKey[] = [];
  for (const dated of grantKeys) {
    const key = await importPublicKey(dated.jwk);
    if (key !== undefined) imported.push({ dated, key: key.key });
  }
  return imported;
}
