/** Headers on their way through the proxy, as flat lists of names and values, so that nothing is merged or renamed. */
import type { InjectedHeader } from '../../shared/network.ts';

/** Of one hop only. What frames the body is written anew by the HTTP library. */
const HOP_BY_HOP = new Set([
  'connection',
  'expect',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

type Pair = readonly [name: string, value: string];

function pairs(rawHeaders: readonly string[]): Pair[] {
  const found: Pair[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    found.push([rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '']);
  }
  return found;
}

function endToEnd(rawHeaders: readonly string[]): Pair[] {
  const all = pairs(rawHeaders);
  const dropped = new Set(HOP_BY_HOP);
  for (const [name, value] of all) {
    if (name.toLowerCase() !== 'connection') continue;
    for (const named of value.split(',')) dropped.add(named.trim().toLowerCase());
  }
  // What frames the body stays, whatever a Connection header says of it.
  dropped.delete('content-length');
  return all.filter(([name]) => !dropped.has(name.toLowerCase()));
}

export interface RequestHeaders {
  readonly rawHeaders: readonly string[];
  readonly method: string;
  readonly isChunked: boolean;
  readonly hasLength: boolean;
  readonly authority: string;
  readonly inject: readonly InjectedHeader[];
}

/** What goes upstream. A header that is added replaces whatever the client sent under its name. */
export function requestHeaders(request: RequestHeaders): string[] {
  const injected = new Set(request.inject.map(({ header }) => header.toLowerCase()));
  if (injected.size > 0) injected.add('accept-encoding');
  const kept = endToEnd(request.rawHeaders).filter(([name]) => {
    const lower = name.toLowerCase();
    return lower !== 'host' && !injected.has(lower);
  });
  const framing: Pair[] = request.isChunked
    ? [['Transfer-Encoding', 'chunked']]
    : !request.hasLength && /^(POST|PUT|PATCH)$/.test(request.method)
      ? [['Content-Length', '0']]
      : [];
  return [
    ['Host', request.authority],
    ...kept,
    ...framing,
    // Plain bytes, so that the secret can be found in what comes back.
    ...(injected.size > 0 ? [['Accept-Encoding', 'identity']] : []),
    ...request.inject.map(({ header, secret }) => [header, secret]),
  ].flat();
}

export function responseHeaders(rawHeaders: readonly string[], hide: (text: string) => string): string[] {
  return endToEnd(rawHeaders).flatMap(([name, value]) => [name, hide(value)]);
}
