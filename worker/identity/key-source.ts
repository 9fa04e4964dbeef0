/** Where the keys of an issuer come from. */
import type { VerificationKey } from './verification-key.ts';

export type KeyLookup =
  | { found: 'key'; key: VerificationKey }
  /** The issuer has keys, and this id is none of them. */
  | { found: 'unknown' }
  /** The keys of the issuer could not be had, and no earlier ones are kept. */
  | { found: 'unavailable' };

export interface KeySource {
  keyFor(keyId: string, waitUntil: (promise: Promise<unknown>) => void): Promise<KeyLookup>;
}

/** Keys written into the configuration. */
export class InlineKeys implements KeySource {
  readonly #keys: ReadonlyMap<string, VerificationKey>;

  constructor(keys: ReadonlyMap<string, VerificationKey>) {
    this.#keys = keys;
  }

  keyFor(keyId: string): Promise<KeyLookup> {
    const key = this.#keys.get(keyId);
    return Promise.resolve(key === undefined ? { found: 'unknown' } : { found: 'key', key });
  }
}
