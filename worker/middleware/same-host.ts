/**
 * The name by which a request came here is the edge's own. A page that rebinds its own name to this address cannot
 * then pass for a local client; on a loopback address all of its names are the same.
 */
import type { MiddlewareHandler } from 'hono';
import { failure } from '../../shared/errors.ts';
import { configurationOf } from '../configuration.ts';
import { isLoopbackHttp } from '../identity/issuer.ts';
import type { AppEnvironment } from './app-environment.ts';
import { Refusal } from './refusal.ts';

export const sameHost: MiddlewareHandler<AppEnvironment> = async (c, next) => {
  const own = new URL((await configurationOf(c.env)).origin);
  const asked = new URL(c.req.url);
  const isOwn = asked.host === own.host || (isLoopbackHttp(own) && isLoopbackHttp(asked));
  if (!isOwn) throw new Refusal(failure('forbidden', 'this host name is not the one of the edge'));
  await next();
};
