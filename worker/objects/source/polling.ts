/** When a source is asked again: at its interval, sooner after a first failure, and never all sources at once. */
const FIRST_RETRY_MS = 10_000;
const MAX_DOUBLINGS = 16;
const JITTER = 0.1;

export function nextPollAtMs(
  { intervalMs, failures }: { intervalMs: number; failures: number },
  nowMs: number,
): number {
  const waitMs =
    failures === 0
      ? intervalMs
      : Math.min(intervalMs, FIRST_RETRY_MS * 2 ** Math.min(failures - 1, MAX_DOUBLINGS));
  return Math.round(nowMs + waitMs * (1 + JITTER * (2 * Math.random() - 1)));
}
