/**
 * Keys that an issuer publishes at a URL. Kept while they are fresh, asked for again when they are not or when a
 * token names an unknown key, and kept on when the issuer is down. Unknown key ids cannot make the edge hammer it.
 */
import * as z from 'zod';
import { answerWithin } from '../middleware/answer-within.ts';
import type { KeyLookup, KeySource } from './key-source.ts';
import { readBounded } from './read-bounded.ts';
import type { VerificationKey } from './verification-key.ts';

export const JWKS_TIMEOUT_MS = 5_000;
export const JWKS_COOLDOWN_MS = 30_000;
/** With the time that a verified token is remembered: a key that its issuer took back is refused within a minute. */
export const JWKS_MAX_AGE_MS = 35_000;
/** How long keys serve on while the issuer cannot be asked. */
export const JWKS_LAST_GOOD_MS = 86_400_000;
/** Pause after a failed attempt while there are no keys at all: every token waits for the next one. */
export const JWKS_RETRY_MS = 5_000;
const MAX_JWKS_BYTES = 262_144;

const JwksSchema = z.object({ keys: z.array(z.unknown()).max(64) });

export interface RemoteKeysPorts {
  fetch: (url: string, init: RequestInit) => Promise<Response>;
  nowMs: () => number;
}

const WORKER_PORTS: RemoteKeysPorts = { fetch: (url, init) => fetch(url, init), nowMs: () => Date.now() };

export class RemoteKeys implements KeySource {
  readonly #url: URL;
  readonly #importKey: (jwk: unknown) => Promise<VerificationKey | undefined>;
  readonly #ports: RemoteKeysPorts;
  #keys: ReadonlyMap<string, VerificationKey> = new Map();
  #loadedMs = Number.NEGATIVE_INFINITY;
  #attemptedMs = Number.NEGATIVE_INFINITY;
  /** Last time that an unknown key id caused a fetch. */
  #unknownMs = Number.NEGATIVE_INFINITY;
  #pending: Promise<void> | undefined;

  constructor(
    url: URL,
    importKey: (jwk: unknown) => Promise<VerificationKey | undefined>,
    ports: RemoteKeysPorts = WORKER_PORTS,
  ) {
    this.#url = url;
    this.#importKey = importKey;
    this.#ports = ports;
  }

  async keyFor(keyId: string, waitUntil: (promise: Promise<unknown>) => void): Promise<KeyLookup> {
    const nowMs = this.#ports.nowMs();
    const isFresh = nowMs - this.#loadedMs < JWKS_MAX_AGE_MS;
    const known = this.#keys.get(keyId);
    if (isFresh && known !== undefined) return { found: 'key', key: known };
    if (this.#pending === undefined && this.#mayFetch(nowMs, isFresh)) {
      if (isFresh) this.#unknownMs = nowMs;
      this.#refresh(nowMs, waitUntil);
    }
    await this.#settled();
    const key = this.#keys.get(keyId);
    const usable = this.#ports.nowMs() - this.#loadedMs < JWKS_LAST_GOOD_MS;
    if (!usable) return { found: 'unavailable' };
    if (key !== undefined) return { found: 'key', key };
    // A first fetch that an unknown id caused counts as its one fetch.
    this.#unknownMs = Math.max(this.#unknownMs, this.#loadedMs);
    return { found: 'unknown' };
  }

  #mayFetch(nowMs: number, isFresh: boolean): boolean {
    if (isFresh) return nowMs - this.#unknownMs >= JWKS_COOLDOWN_MS;
    const hasKeys = nowMs - this.#loadedMs < JWKS_LAST_GOOD_MS;
    return nowMs - this.#attemptedMs >= (hasKeys ? JWKS_COOLDOWN_MS : JWKS_RETRY_MS);
  }

  #refresh(nowMs: number, waitUntil: (promise: Promise<unknown>) => void): void {
    this.#attemptedMs = nowMs;
    const pending = this.#load(nowMs).finally(() => {
      if (this.#pending === pending) this.#pending = undefined;
    });
    this.#pending = pending;
    // Others wait for this fetch: it must not die with the request that began it.
    waitUntil(pending);
  }

  async #load(nowMs: number): Promise<void> {
    try {
      const response = await this.#ports.fetch(this.#url.href, {
        redirect: 'manual',
        headers: { accept: 'application/json' },
        signal: AbortSignal.timeout(JWKS_TIMEOUT_MS),
      });
      if (response.status !== 200) throw new TypeError(`status ${response.status}`);
      const bytes = await readBounded(response.body, MAX_JWKS_BYTES);
      if (bytes === undefined) throw new TypeError(`more than ${MAX_JWKS_BYTES} bytes`);
      const keys = await this.#importAll(JwksSchema.parse(JSON.parse(new TextDecoder().decode(bytes))).keys);
      if (keys.size === 0) throw new TypeError('no usable key');
      this.#keys = keys;
      this.#loadedMs = nowMs;
    } catch (error: unknown) {
      const detail = error instanceof Error ? `${error.name}: ${error.message}`.slice(0, 200) : 'unknown';
      console.warn(
        JSON.stringify({ level: 'warn', event: 'jwks_fetch_failed', url: this.#url.href, detail }),
      );
    }
  }

  async #importAll(jwks: readonly unknown[]): Promise<Map<string, VerificationKey>> {
    const keys = new Map<string, VerificationKey>();
    for (const jwk of jwks) {
      const key = await this.#importKey(jwk);
      if (key !== undefined && !keys.has(key.keyId)) keys.set(key.keyId, key);
    }
    return keys;
  }

  /** The request that began the fetch may have been cut off. */
  async #settled(): Promise<void> {
    const pending = this.#pending;
    if (pending === undefined) return;
    await answerWithin(pending, JWKS_TIMEOUT_MS + 1_000);
    if (this.#pending === pending) this.#pending = undefined;
  }
}
