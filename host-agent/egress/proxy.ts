/** The proxy of one session: what its guest says to the port is read here as HTTP, by the rules of a proxy. */
import { createServer, type Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { denial, denialResponse } from './denial.ts';
import { type ForwardContext, forward } from './forward.ts';
import { tunnel } from './tunnel.ts';

const MAX_REQUEST_HEADER_BYTES = 64 * 1024;
const MAX_HEADERS = 200;
/** A client that says nothing, at first or between two requests, does not keep one of the session's connections. */
const FIRST_REQUEST_TIMEOUT_MS = 60_000;
const KEEP_ALIVE_TIMEOUT_MS = 60_000;

/** What of a socket the proxy needs. */
export type ProxyConnection = Duplex & { setTimeout(timeoutMs: number): unknown };

export class EgressProxy {
  readonly #server: Server;

  constructor(context: ForwardContext) {
    this.#server = createServer({
      maxHeaderSize: MAX_REQUEST_HEADER_BYTES,
      insecureHTTPParser: false,
      // The URL names the host; a Host header that says otherwise is written anew.
      requireHostHeader: false,
      noDelay: false,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    });
    this.#server.maxHeadersCount = MAX_HEADERS;
    this.#server.on('request', (incoming, response) => {
      incoming.socket.setTimeout(0);
      forward(incoming, response, context).catch(() => response.destroy());
    });
    this.#server.on('connect', (incoming, client, head) => {
      incoming.socket.setTimeout(0);
      tunnel(incoming, client, { head, gate: context.gate }).catch(() => client.destroy());
    });
    this.#server.on('clientError', (_error, client) => {
      if (!client.writable || client.destroyed) return;
      client.end(denialResponse(denial('not_a_proxy_request')));
      client.resume();
    });
  }

  /** A connection of the guest. It needs no listening socket: nothing but the guest's own port leads here. */
  accept(connection: ProxyConnection): void {
    connection.setTimeout(FIRST_REQUEST_TIMEOUT_MS);
    this.#server.emit('connection', connection);
  }
}
