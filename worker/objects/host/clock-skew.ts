/** Whether a host's clock is too far from the edge's for its grants to hold. Pure. */
import { MAX_CLOCK_SKEW_S } from '../../../shared/limits.ts';

/** A host of an older agent does not say what time it has: nothing is held against it. */
export function isSkewed(hostTimeMs: number | undefined, nowMs: number): boolean {
  return hostTimeMs !== undefined && Math.abs(hostTimeMs - nowMs) > MAX_CLOCK_SKEW_S * 1_000;
}
