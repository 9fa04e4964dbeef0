/** Whether a host lives, by when it was last heard of. Pure. */
import { HOST_DEAD_MS, HOST_SUSPECT_MS } from '../../../shared/limits.ts';

export interface Liveness {
  state: 'connected' | 'suspect' | 'dead';
  /** When to look again; null when there is nothing more to wait for. */
  checkAtMs: number | null;
}

export function livenessOf(lastSeenMs: number, hasLink: boolean, nowMs: number): Liveness {
  const silentMs = nowMs - lastSeenMs;
  if (silentMs >= HOST_DEAD_MS) return { state: 'dead', checkAtMs: null };
  if (silentMs >= HOST_SUSPECT_MS) return { state: 'suspect', checkAtMs: lastSeenMs + HOST_DEAD_MS };
  return { state: hasLink ? 'connected' : 'suspect', checkAtMs: lastSeenMs + HOST_SUSPECT_MS };
}
