/** A token bucket as data: full at first, refilled evenly, never above its capacity. */
export interface TokenBucket {
  tokens: number;
  updatedAtMs: number;
}

export interface TokenBucketRate {
  capacity: number;
  perMinute: number;
}

export function fullBucket(rate: TokenBucketRate, nowMs: number): TokenBucket {
  return { tokens: rate.capacity, updatedAtMs: nowMs };
}

/** Takes up to `wanted` whole tokens. */
export function takeTokens(
  bucket: TokenBucket,
  rate: TokenBucketRate,
  request: { wanted: number; nowMs: number },
): { bucket: TokenBucket; granted: number; remaining: number; resetMs: number } {
  const perMs = rate.perMinute / 60_000;
  const elapsedMs = Math.max(0, request.nowMs - bucket.updatedAtMs);
  const available = Math.min(rate.capacity, bucket.tokens + elapsedMs * perMs);
  const granted = Math.min(Math.max(0, Math.floor(request.wanted)), Math.floor(available));
  const left = available - granted;
  const remaining = Math.floor(left);
  return {
    bucket: { tokens: left, updatedAtMs: request.nowMs },
    granted,
    remaining,
    resetMs: remaining >= 1 ? (rate.capacity - left) / perMs : (1 - left) / perMs,
  };
}
