/** From what a client wrote to the host and port it means; there is one reading, or none. */
import { canonicalHost, type EgressTarget } from '../../shared/network.ts';

const AUTHORITY = /^(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?$/;
const MAX_PORT = 65_535;

/**
 * `host:port` of a CONNECT or of a URL. Only the characters of a name are taken: what other programs would decode or
 * fold into a name is not guessed at here.
 */
export function parseAuthority(text: string, defaultPort: number | null): EgressTarget | undefined {
  const match = AUTHORITY.exec(text);
  if (match === null) return undefined;
  const [, hostText = '', portText] = match;
  const host = canonicalHost(hostText);
  const port = portText === undefined ? defaultPort : Number(portText);
  if (host === undefined || port === null || port < 1 || port > MAX_PORT) return undefined;
  return { ...host, port };
}

export interface HttpTarget {
  readonly target: EgressTarget;
  /** Whether the client named the port. */
  readonly hasPort: boolean;
  /** Path and query, as written. */
  readonly path: string;
}

const HTTP_URL = /^http:\/\/([^/?#]*)([/?][^#]*)?$/i;

/** The whole URL in the first line of a request to a proxy; undefined for any other form of it. */
export function parseHttpTarget(url: string): HttpTarget | undefined {
  const match = HTTP_URL.exec(url);
  if (match === null) return undefined;
  const [, authority = '', rest = '/'] = match;
  const target = parseAuthority(authority, 80);
  if (target === undefined) return undefined;
  const hasPort = /:\d+$/.test(authority);
  return { target, hasPort, path: rest.startsWith('?') ? `/${rest}` : rest };
}

/** As a URL or a Host header writes it. */
export function authorityOf({ host }: EgressTarget, port: number | null): string {
  const bracketed = host.includes(':') ? `[${host}]` : host;
  return port === null ? bracketed : `${bracketed}:${port}`;
}
