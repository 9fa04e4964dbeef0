/** How long a test waits for what should come: a bound on hanging, not on speed, for files run beside each other on busy machines. */
export const PATIENCE_MS = 60_000;

/** What nothing in a test takes that does not hang: far below the sleeps and deadlines that it would otherwise end by. */
export const STUCK_MS = 25_000;
