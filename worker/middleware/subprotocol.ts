/**
 * Subprotocols of the WebSockets that clients open. A page can send no `Authorization` header with a socket, but it can
 * offer subprotocols: the terminal's, and the token as another, which is never the one that is chosen and sent back.
 */
export const TERMINAL_SUBPROTOCOL = 'sandgate.terminal';
export const EVENTS_SUBPROTOCOL = 'sandgate.events';
const BEARER_PREFIX = 'sandgate.bearer.';

export function offeredSubprotocols(headers: Headers): string[] {
  const offered = headers.get('Sec-WebSocket-Protocol');
  return offered === null ? [] : offered.split(',').map((name) => name.trim());
}

/** The token as the `Authorization` header would have it; several are refused as several headers are. */
export function bearerOfSubprotocol(headers: Headers): string | undefined {
  const tokens = offeredSubprotocols(headers).filter((name) => name.startsWith(BEARER_PREFIX));
  if (tokens.length === 0) return undefined;
  return tokens.map((name) => `Bearer ${name.slice(BEARER_PREFIX.length)}`).join(',');
}
