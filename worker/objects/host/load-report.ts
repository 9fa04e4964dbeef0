/** Which changes of a host's load are worth telling its pool. Pure. */
export interface Load {
  sandboxes: number;
  capacity: number;
  degraded: boolean;
  skewed: boolean;
}

export const REPORT_INTERVAL_MS = 30_000;
const REPORT_CHANGE = 0.1;

export function isWorthReporting(load: Load, reported: Load & { atMs: number }, nowMs: number): boolean {
  const change = Math.abs(load.sandboxes - reported.sandboxes);
  return (
    nowMs - reported.atMs >= REPORT_INTERVAL_MS ||
    load.degraded !== reported.degraded ||
    load.skewed !== reported.skewed ||
    load.capacity !== reported.capacity ||
    // The last free places count one by one, or sessions are sent to a host that is full.
    (change > 0 && load.sandboxes >= load.capacity * (1 - REPORT_CHANGE)) ||
    change > load.capacity * REPORT_CHANGE
  );
}
