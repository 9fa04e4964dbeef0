/**
 * Streams and sockets that stay open longer than a request: while one is, this isolate looks again and again whether its
 * token still holds. Objects know nothing of tokens, so it is here that such a stream ends.
 */
import { EVENT_STREAM_MEDIA_TYPE } from './body.ts';

/** Twice this, and the way to the tenant's object, is within the minute in which a revocation has to hold. */
export const LOOK_INTERVAL_MS = 15_000;

/** Of RFC 6455. 1005 and 1006 are what a side is told, and never sent. */
const CLOSE = { none: 1005, abnormal: 1006, policy: 1008, restart: 1012 } as const;
const MAX_REASON_LENGTH = 120;

/** Why the token holds no more; undefined while it does. A look that fails is repeated with the next one. */
export type Look = () => Promise<string | undefined>;

/** The answer as it is, but for what ends it where its token is taken back. */
export function whileTokenHolds(answer: Response, look: Look, intervalMs = LOOK_INTERVAL_MS): Response {
  if (answer.webSocket !== null) return relayed(answer, answer.webSocket, { look, intervalMs });
  const isEvents = answer.headers.get('Content-Type')?.startsWith(EVENT_STREAM_MEDIA_TYPE) === true;
  if (answer.body === null || !isEvents) return answer;
  const { readable, writable } = new IdentityTransformStream();
  const cut = new AbortController();
  const stop = lookUntil((why) => cut.abort(new Error(why)), { look, intervalMs });
  answer.body
    .pipeTo(writable, { signal: cut.signal, preventAbort: true })
    // A stream of events that ends without its last event was cut: its reader comes back, and is told why.
    .catch((error: unknown) => (cut.signal.aborted ? writable.close() : writable.abort(error)))
    .catch(() => undefined)
    .finally(stop);
  return new Response(readable, answer);
}

function relayed(answer: Response, inner: WebSocket, about: { look: Look; intervalMs: number }): Response {
  const { 0: client, 1: outer } = new WebSocketPair();
  for (const socket of [inner, outer]) socket.binaryType = 'arraybuffer';
  const stop = lookUntil((why) => {
    close(outer, CLOSE.policy, why);
    close(inner, CLOSE.policy, why);
  }, about);
  pass(inner, outer, stop);
  pass(outer, inner, stop);
  inner.accept();
  outer.accept();
  return new Response(null, { status: answer.status, headers: answer.headers, webSocket: client });
}

function pass(from: WebSocket, to: WebSocket, stop: () => void): void {
  from.addEventListener('message', ({ data }) => {
    try {
      to.send(data);
    } catch {
      close(from, CLOSE.restart, 'the other side is gone');
    }
  });
  from.addEventListener('close', ({ code, reason }) => {
    stop();
    close(to, code, reason);
    close(from, code, reason);
  });
  from.addEventListener('error', () => {
    stop();
    close(to, CLOSE.restart, 'the other side is gone');
  });
}

/** Closes as the other side was closed; what cannot be said on the wire is said as a restart. */
function close(socket: WebSocket, code: number, reason: string): void {
  try {
    if (code === CLOSE.none) socket.close();
    else socket.close(code === CLOSE.abnormal ? CLOSE.restart : code, reason.slice(0, MAX_REASON_LENGTH));
  } catch {
    // Already closed.
  }
}

function lookUntil(
  end: (why: string) => void,
  { look, intervalMs }: { look: Look; intervalMs: number },
): () => void {
  let isOver = false;
  const later = () => setTimeout(() => void again(), intervalMs);
  let timer = later();
  async function again(): Promise<void> {
    const why = await look().catch(() => undefined);
    if (isOver) return;
    if (why === undefined) timer = later();
    else end(why);
  }
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
