/**
 * Whether a host was revoked, which its object knows. Links are asked for each time; for what a host brings in many small
 * requests an isolate believes for some seconds what it has heard.
 */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Env } from '../env.ts';
import { callObject } from '../middleware/call-object.ts';

const BELIEVED_MS = 10_000;
const MAX_BELIEVED = 1_000;

/** By host, when it was heard last that it was not revoked. */
const believed = new Map<string, number>();

/** Refuses a revoked host, and what cannot be known of. */
export async function requireNotRevoked(env: Env, hostId: string): Promise<Outcome<null>> {
  const revokedAtMs = await revokedAtMsOf(env, hostId);
  if (!revokedAtMs.ok) return revokedAtMs;
  return revokedAtMs.value === null
    ? success(null)
    : failure('unauthenticated', 'the host was revoked; it may be enrolled anew, with another key');
}

export async function requireNotRevokedOfLate(env: Env, hostId: string): Promise<Outcome<null>> {
  const nowMs = Date.now();
  const heardAtMs = believed.get(hostId);
  if (heardAtMs !== undefined && nowMs - heardAtMs < BELIEVED_MS) return success(null);
  believed.delete(hostId);
  const required = await requireNotRevoked(env, hostId);
  if (required.ok) {
    if (believed.size >= MAX_BELIEVED) believed.clear();
    believed.set(hostId, nowMs);
  }
  return required;
}

export function revokedAtMsOf(env: Env, hostId: string): Promise<Outcome<number | null>> {
  return callObject(() => env.HOST.getByName(hostId).revokedAtMs(), { safe: true });
}
