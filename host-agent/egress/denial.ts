/** What the proxy answers where it does not let through, as a status line that clients show and a text that says why. */
import type { EgressTarget } from '../../shared/network.ts';
import type { AddressRefusal } from './addresses.ts';

export type DenialReason =
  | 'malformed'
  | 'not_a_proxy_request'
  | 'not_listed'
  | 'address_literal'
  | 'port'
  | 'address'
  | 'unresolved'
  | 'unreachable'
  | 'connect_timeout'
  | 'tls'
  | 'upstream'
  | 'method'
  | 'connections'
  | 'host_connections'
  | 'rate'
  | 'bytes';

export interface Denial {
  readonly status: number;
  readonly reason: DenialReason;
  readonly text: string;
}

const STATUS: Readonly<Record<DenialReason, number>> = {
  malformed: 400,
  not_a_proxy_request: 400,
  not_listed: 403,
  address_literal: 403,
  port: 403,
  address: 403,
  unresolved: 502,
  unreachable: 502,
  connect_timeout: 504,
  tls: 502,
  upstream: 502,
  method: 405,
  connections: 429,
  host_connections: 503,
  rate: 429,
  bytes: 429,
};

/** Hosts are canonical when they come here: ASCII, and nothing that could end a line. */
export function denial(reason: DenialReason, target?: EgressTarget, refusal?: AddressRefusal): Denial {
  return { status: STATUS[reason], reason, text: textOf(reason, target, refusal) };
}

function textOf(
  reason: DenialReason,
  target: EgressTarget | undefined,
  refusal: AddressRefusal | undefined,
): string {
  const host = target?.host ?? 'the host';
  const place = target === undefined ? 'the host' : `${host}:${target.port}`;
  switch (reason) {
    case 'malformed':
      return 'no host and port in the request that could be reached';
    case 'not_a_proxy_request':
      return 'this is a proxy: CONNECT host:port, or a whole http:// URL, was expected';
    case 'not_listed':
      return `${place} is not in network.allow of this session`;
    case 'address_literal':
      return `the address ${place} is not in network.allow of this session; names do not open addresses`;
    case 'port':
      return `${place}: network.allow of this session has the host but not this port`;
    case 'address':
      return `${place} is allowed, but its address is not a public one (${refusal ?? 'reserved'})`;
    case 'unresolved':
      return `${host} has no address`;
    case 'unreachable':
      return `${place} does not take connections`;
    case 'connect_timeout':
      return `${place} did not answer in time`;
    case 'tls':
      return `${place} did not prove by TLS that it is ${host}`;
    case 'upstream':
      return `${place} ended the connection without an answer`;
    case 'method':
      return `${place}: TRACE would show the header that is added for this host`;
    case 'connections':
      return 'too many connections of this session at once';
    case 'host_connections':
      return 'too many connections of this host at once';
    case 'rate':
      return 'too many connections of this session in a short time';
    case 'bytes':
      return 'this sandbox has moved all the bytes that its host lets it';
  }
}

export const DENIAL_HEADER = 'sandgate-egress';

/** The whole answer to a CONNECT: most clients show no more of it than the first line. */
export function denialResponse({ status, reason, text }: Denial): string {
  const body = `sandgate: ${text}\n`;
  return [
    `HTTP/1.1 ${status} ${text}`,
    'Content-Type: text/plain; charset=utf-8',
    `Content-Length: ${body.length}`,
    `${DENIAL_HEADER}: ${reason}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
