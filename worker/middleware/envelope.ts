/** What every answer carries: the request id, the security headers, and the caller's rate. */
import type { MiddlewareHandler } from 'hono';
import { newId } from '../../shared/ids.ts';
import { requestIdOfTrace } from '../../shared/trace.ts';
import { rateHeaders } from './admission.ts';
import type { AppEnvironment } from './app-environment.ts';
import { observe } from './observation.ts';

export const REQUEST_ID_HEADER = 'Request-Id';
const REQUEST_ID = /^req_[A-Za-z0-9_-]{22}$/;
const SWITCHING_PROTOCOLS = 101;

/** The rate's own, from where the request was refused for it. */
function isOfRate(value: string): boolean {
  return /^(\d|"(tenant|subject)")/.test(value);
}

export const envelope: MiddlewareHandler<AppEnvironment> = async (c, next) => {
  const given = c.req.header(REQUEST_ID_HEADER);
  const ofTrace = requestIdOfTrace(c.req.header('traceparent') ?? '');
  const requestId = ofTrace ?? (given !== undefined && REQUEST_ID.test(given) ? given : newId('req'));
  c.set('requestId', requestId);
  c.set('receivedMs', Date.now());
  await next();
  c.get('answered')?.();
  observe(c);
  // The router drops the body of an answer to HEAD; a stream must hear that nobody reads it.
  if (c.req.raw.method === 'HEAD') await c.res.body?.cancel();
  // The answer to an upgrade belongs to the object that holds the socket.
  if (c.res.status === SWITCHING_PROTOCOLS) return;
  const { headers } = c.res;
  headers.set(REQUEST_ID_HEADER, requestId);
  headers.set('X-Content-Type-Options', 'nosniff');
  if (!headers.has('Cache-Control')) headers.set('Cache-Control', 'no-store');
  const rate = c.get('rate');
  if (rate !== undefined) {
    for (const [name, value] of Object.entries(rateHeaders(rate, Date.now()))) {
      // A refusal may name the quota that it is of; both are lists.
      const quota = headers.get(name);
      headers.set(name, quota === null || isOfRate(quota) ? value : `${value}, ${quota}`);
    }
  }
};
