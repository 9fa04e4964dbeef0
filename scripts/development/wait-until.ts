/** Waits for a condition with a bound; the only place that polls. */

export type WaitOptions = { timeoutMs: number; intervalMs?: number };

/** Returns the first value that is not undefined, or undefined when the time is up. */
export async function waitUntil<T>(
  probe: () => Promise<T | undefined> | T | undefined,
  { timeoutMs, intervalMs = 50 }: WaitOptions,
): Promise<T | undefined> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined || performance.now() >= deadlineMs) return value;
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}
