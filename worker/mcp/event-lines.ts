/** What the event stream of a call says beside its messages. */

/** Comments on an open stream: a client that is gone is noticed by the next one. */
export const KEEP_ALIVE_MS = 1_000;
/** After this its client comes back, where the stream was cut. */
const RETRY_MS = 1_000;
const EMPTY_EVENTS_SINCE = '2025-11-25';

/** An event without a message, so that a stream which is cut before its first one can be taken up again. */
export function primingEvent(id: string): string {
  return `id: ${id}\nretry: ${RETRY_MS}\ndata: \n\n`;
}

/** Clients of versions before read an empty event as a message that is not JSON. */
export function readsPrimingEvents({ headers }: Request): boolean {
  return (headers.get('Mcp-Protocol-Version') ?? '') >= EMPTY_EVENTS_SINCE;
}
