/**
 * Tokens that were verified a moment ago, by their text: an agent sends the same one with every call. What is revoked
 * or rotated out is so noticed at most `REMEMBERED_MS` later.
 */
import type { TenantPrincipal } from './principal.ts';

export const REMEMBERED_MS = 20_000;
const MAX_TOKENS = 512;

interface Entry {
  principal: TenantPrincipal;
  untilMs: number;
}

export class VerifiedTokens {
  readonly #entries = new Map<string, Entry>();

  find(token: string, nowMs: number): TenantPrincipal | undefined {
    const entry = this.#entries.get(token);
    if (entry === undefined) return undefined;
    if (nowMs < entry.untilMs) return entry.principal;
    this.#entries.delete(token);
    return undefined;
  }

  /** Never past the token's own end: after it, the verification decides about the leeway. */
  remember(token: string, principal: TenantPrincipal, nowMs: number): void {
    const untilMs = Math.min(nowMs + REMEMBERED_MS, principal.expiresAtMs);
    if (untilMs <= nowMs) return;
    if (this.#entries.size >= MAX_TOKENS) this.#removeOldest();
    this.#entries.set(token, { principal, untilMs });
  }

  #removeOldest(): void {
    const oldest = this.#entries.keys().next();
    if (oldest.done !== true) this.#entries.delete(oldest.value);
  }
}
