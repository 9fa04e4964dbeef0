/** The only place where failures become answers: problem+json, its status and its headers. */
import type { Context } from 'hono';
import { ERRORS, type Failure, failure } from '../../shared/errors.ts';
import { PROBLEM_MEDIA_TYPE, problemOf } from '../../shared/problem.ts';
import { ConfigurationError } from '../configuration.ts';
import type { AppEnvironment } from './app-environment.ts';
import { Refusal } from './refusal.ts';

const DEFAULT_RETRY_AFTER_S = 1;

export function problemResponse(
  refused: Failure,
  requestId: string,
  headers: Readonly<Record<string, string>> = {},
): Response {
  const { status, retryable } = ERRORS[refused.code];
  const response = new Response(JSON.stringify(problemOf(refused, requestId)), {
    status,
    headers: { 'Content-Type': PROBLEM_MEDIA_TYPE, ...headers },
  });
  if (refused.limit !== undefined && refused.code !== 'rate_limited')
    setQuotaHeaders(response.headers, refused);
  const retryAfterS = refused.retry_after_s ?? (retryable ? DEFAULT_RETRY_AFTER_S : undefined);
  if (retryAfterS !== undefined) response.headers.set('Retry-After', String(Math.ceil(retryAfterS)));
  return response;
}

const DAY_S = 86_400;

/** The limit beside the caller's rate, which the envelope adds. */
function setQuotaHeaders(headers: Headers, { limit, retry_after_s }: Failure): void {
  if (limit === undefined) return;
  const left = Math.max(0, Math.floor(limit.limit - limit.used));
  const reset = retry_after_s === undefined ? '' : `;t=${Math.ceil(retry_after_s)}`;
  const window = limit.name.endsWith('_per_day') ? `;w=${DAY_S}` : '';
  headers.set('RateLimit', `"${limit.name}";r=${left}${reset}`);
  headers.set('RateLimit-Policy', `"${limit.name}";q=${limit.limit}${window}`);
}

/** `app.onError`. What is not a refusal is a fault of ours: logged with the request id, answered without detail. */
export function renderError(error: Error, c: Context<AppEnvironment>): Response {
  const requestId = c.get('requestId');
  c.set('refusedAs', error instanceof Refusal ? error.failure.code : 'internal');
  if (error instanceof Refusal) return problemResponse(error.failure, requestId, error.headers);
  if (!(error instanceof ConfigurationError)) {
    console.error(
      JSON.stringify({
        level: 'error',
        event: 'unhandled',
        request_id: requestId,
        method: c.req.method,
        route: c.req.routePath,
        error: error.name,
        detail: error.message.slice(0, 500),
        stack: error.stack?.slice(0, 2_000),
      }),
    );
  }
  return problemResponse(
    failure('internal', 'the gateway failed; the request id finds the reason'),
    requestId,
  );
}

/** `app.notFound`. */
export function renderNotFound(c: Context<AppEnvironment>): Response {
  return problemResponse(failure('not_found', 'no such route'), c.get('requestId'));
}
