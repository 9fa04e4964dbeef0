/** What every answer carries: the request id, the security headers, and the caller's rate. */
import type { Context, MiddlewareHandler } from 'hono';
import { takeLetIn } from '../load/early-refusal.ts';
import { rateHeaders } from './admission.ts';
import type { AppEnvironment } from './app-environment.ts';
import { observe } from './observation.ts';
import { REQUEST_ID_HEADER, requestIdOf } from './request-id.ts';

const SWITCHING_PROTOCOLS = 101;

/** The rate's own, from where the request was refused for it. */
function isOfRate(value: string): boolean {
  return /^(\d|"(tenant|subject)")/.test(value);
}

export const envelope: MiddlewareHandler<AppEnvironment> = async (c, next) => {
  const requestId = requestIdOf(c.req.raw.headers);
  c.set('requestId', requestId);
  c.set('receivedMs', Date.now());
  await next();
  (c.get('answered') ?? takeLetIn(c.req.raw))?.(ownMs(c));
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

/** Undefined where it is not known, and where the answer is that of an earlier request. */
function ownMs(c: Context<AppEnvironment>): number | undefined {
  const elsewhereMs = c.get('elsewhereMs');
  if (elsewhereMs === undefined) return undefined;
  const own = Date.now() - c.get('receivedMs') - elsewhereMs;
  return own < 0 ? undefined : own;
}
