/** Browsers say where a request comes from; only pages of this edge itself may call it. There is no CORS. */
import type { MiddlewareHandler } from 'hono';
import { failure } from '../../shared/errors.ts';
import { configurationOf } from '../configuration.ts';
import type { AppEnvironment } from './app-environment.ts';
import { Refusal } from './refusal.ts';

export const sameOrigin: MiddlewareHandler<AppEnvironment> = async (c, next) => {
  const origin = c.req.header('Origin');
  if (origin !== undefined && origin !== (await configurationOf(c.env)).origin) {
    throw new Refusal(failure('forbidden', 'requests of pages of other origins are not served'));
  }
  await next();
};
