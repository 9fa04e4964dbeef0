/** How long what is over is kept. */

/** Readers of the last events of a session have this long to take them. */
export const READERS_LEAVE_MS = 60_000;
/** An idempotency key is answered with its execution for this long, also after the end of the session. */
export const KEYS_LIVE_MS = 86_400_000;
/** A session that failed says why for this long. */
export const FAILED_LIVE_MS = 86_400_000;

/** A suspended session that nobody wakes for so long ends, and what is stored of it goes. */
export const SUSPENDED_LIVE_MS = 30 * 86_400_000;
