/** How long a test waits for what should come: a bound on hanging, not on speed, for files run beside each other on busy machines. */
export const PATIENCE_MS = 60_000;
