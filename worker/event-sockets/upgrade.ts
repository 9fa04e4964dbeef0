/** Turns a stream of events into a WebSocket for the client that asked for one. */
import { invalid } from '../middleware/body.ts';
import { EVENTS_SUBPROTOCOL, offeredSubprotocols } from '../middleware/subprotocol.ts';
import { EventSocket } from './event-socket.ts';

export function wantsSocket(headers: Headers): boolean {
  return headers.get('Upgrade')?.toLowerCase() === 'websocket';
}

/** Refuses, before anything is begun, what a browser could not take an answer to. */
export function eventsSubprotocolOf(headers: Headers): string | undefined {
  const offered = offeredSubprotocols(headers);
  if (offered.includes(EVENTS_SUBPROTOCOL)) return EVENTS_SUBPROTOCOL;
  if (offered.length === 0) return undefined;
  throw invalid([{ path: 'header.Sec-WebSocket-Protocol', expected: `${EVENTS_SUBPROTOCOL} among them` }]);
}

export function eventSocketResponse(
  stream: Response,
  options: { subprotocol: string | undefined; isLast: (data: unknown) => boolean },
): Response {
  const { 0: client, 1: server } = new WebSocketPair();
  server.accept();
  if (stream.body !== null) void new EventSocket(server, stream.body, options.isLast).run();
  const { subprotocol } = options;
  return new Response(null, {
    status: 101,
    webSocket: client,
    headers: {
      'sec-websocket-extensions': 'none',
      ...(subprotocol === undefined ? {} : { 'Sec-WebSocket-Protocol': subprotocol }),
    },
  });
}
