/** One plain HTTP request through the proxy: to its host, with the headers that the session adds, and back. */
import { type ClientRequest, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { EgressTarget, InjectedHeader } from '../../shared/network.ts';
import { DENIAL_HEADER, type Denial, denial } from './denial.ts';
import { CONNECT_TIMEOUT_MS } from './dial.ts';
import type { EgressGate } from './gate.ts';
import { requestHeaders, responseHeaders } from './headers.ts';
import { type EgressPolicy, injectedHeaders } from './policy.ts';
import { SecretFilter } from './secret-filter.ts';
import { authorityOf, type HttpTarget, parseHttpTarget } from './target.ts';

const MAX_RESPONSE_HEADER_BYTES = 64 * 1024;

export interface ForwardContext {
  readonly gate: EgressGate;
  readonly policy: EgressPolicy;
  /** Certificates to trust instead of the usual ones. */
  readonly certificateAuthorities?: readonly string[] | undefined;
}

export async function forward(
  incoming: IncomingMessage,
  response: ServerResponse,
  context: ForwardContext,
): Promise<void> {
  const parsed = parseHttpTarget(incoming.url ?? '');
  if (parsed === undefined) return refuse(incoming, response, denial(kindOfUrl(incoming.url ?? '')));
  const inject = injectedHeaders(context.policy, parsed.target.host);
  const isTls = inject.some(({ tls }) => tls);
  const target = isTls && !parsed.hasPort ? { ...parsed.target, port: 443 } : parsed.target;
  if (inject.length > 0 && incoming.method === 'TRACE') {
    return refuse(incoming, response, denial('method', target));
  }
  const opened = await context.gate.open(target);
  if (!opened.ok) return refuse(incoming, response, opened.denial);
  response.once('close', () => opened.socket.destroy());
  if (response.destroyed) {
    opened.socket.destroy();
    return;
  }
  const socket = isTls ? await secured(opened.socket, target, context.certificateAuthorities) : opened.socket;
  if (socket === undefined) return refuse(incoming, response, denial('tls', target));
  exchange({ incoming, response, socket, parsed, target, inject });
}

function kindOfUrl(url: string): 'malformed' | 'not_a_proxy_request' {
  return /^http:/i.test(url) ? 'malformed' : 'not_a_proxy_request';
}

/** Undefined where the host does not prove its name. */
function secured(
  socket: Socket,
  target: EgressTarget,
  certificateAuthorities: readonly string[] | undefined,
): Promise<TLSSocket | undefined> {
  const { promise, resolve } = Promise.withResolvers<TLSSocket | undefined>();
  const secure = connectTls({
    socket,
    servername: target.host,
    ALPNProtocols: ['http/1.1'],
    ...(certificateAuthorities === undefined ? {} : { ca: [...certificateAuthorities] }),
  });
  const timer = setTimeout(() => socket.destroy(), CONNECT_TIMEOUT_MS).unref();
  secure.once('secureConnect', () => resolve(secure));
  secure.on('error', () => resolve(undefined));
  secure.once('close', () => resolve(undefined));
  return promise.finally(() => clearTimeout(timer));
}

interface Exchange {
  incoming: IncomingMessage;
  response: ServerResponse;
  socket: Socket;
  parsed: HttpTarget;
  target: EgressTarget;
  inject: readonly InjectedHeader[];
}

function exchange({ incoming, response, socket, parsed, target, inject }: Exchange): void {
  const method = incoming.method ?? 'GET';
  const outgoing = request({
    method,
    path: parsed.path,
    headers: requestHeaders({
      rawHeaders: incoming.rawHeaders,
      method,
      isChunked: incoming.headers['transfer-encoding'] !== undefined,
      hasLength: incoming.headers['content-length'] !== undefined,
      authority: authorityOf(target, parsed.hasPort ? target.port : null),
      inject,
    }),
    // Heeded only where no agent is given: one would connect by itself, to whatever it thinks is meant.
    createConnection: () => socket,
    setHost: false,
    maxHeaderSize: MAX_RESPONSE_HEADER_BYTES,
  });
  outgoing.once('response', (answer) => relay(answer, response, new SecretFilter(inject)));
  // An answer of another protocol was not asked for.
  outgoing.once('upgrade', (_answer, upgraded) => upgraded.destroy());
  // An answer that has begun fails, or not, by itself: an upstream may answer early and take no more of the body.
  outgoing.on('error', () => {
    if (!response.headersSent) refuse(incoming, response, denial('upstream', target));
  });
  sendBody(incoming, outgoing);
}

function sendBody(incoming: IncomingMessage, outgoing: ClientRequest): void {
  incoming.pipe(outgoing);
  incoming.once('error', () => outgoing.destroy());
  incoming.once('aborted', () => outgoing.destroy());
}

function relay(answer: IncomingMessage, response: ServerResponse, filter: SecretFilter): void {
  if (response.headersSent || response.destroyed) {
    answer.destroy();
    return;
  }
  response.sendDate = false;
  try {
    const headers = responseHeaders(answer.rawHeaders, filter.hide);
    response.writeHead(answer.statusCode ?? 502, filter.hide(answer.statusMessage ?? ''), headers);
  } catch {
    response.destroy();
    answer.destroy();
    return;
  }
  response.flushHeaders();
  // What fails here was begun already: the connection is cut, so that it is not taken for whole.
  const done = (error: NodeJS.ErrnoException | null | undefined): void => {
    if (error) response.destroy();
  };
  if (filter.isIdle) pipeline(answer, response, done);
  else pipeline(answer, filter.body(), response, done);
}

/** After an answer has begun there is no other: the connection is cut. */
function refuse(incoming: IncomingMessage, response: ServerResponse, { status, reason, text }: Denial): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  // The body that may still come is not worth reading.
  response.writeHead(status, text, {
    'Content-Type': 'text/plain; charset=utf-8',
    [DENIAL_HEADER]: reason,
    ...(incoming.complete ? {} : { Connection: 'close' }),
  });
  response.end(`sandgate: ${text}\n`);
}
