/** A route of another server, served over our own functions: the same road to its handler, and refusals as its clients read them. */

import type * as z from 'zod';
import { ERRORS, type ErrorCode, type Failure } from '../../shared/errors.ts';
import { Refusal } from '../middleware/refusal.ts';
import { reply } from '../routing/reply.ts';
import { type Access, defineRoute, type Route } from '../routing/route.ts';

/** How one server speaks, where it differs from ours. */
export interface Dialect {
  authorizationOf: (headers: Headers) => string | undefined;
  /** The status by which its clients know the failure. */
  statusOf: (code: ErrorCode) => number;
}

type Definition<Path extends string, Query extends z.ZodObject, Body> = Omit<
  Parameters<typeof defineRoute<Path, 'tenant', Query, Body>>[0],
  'operationId' | 'summary' | 'answers' | 'errors' | 'access'
> & { access?: Omit<Access<'tenant'>, 'kind' | 'authorizationOf'> };

/** What these routes take and give is described by their own projects, not by our description. */
const UNDESCRIBED = { summary: '', answers: {}, errors: [] };
const UNPROCESSABLE = 422;

export function adapterRoute<
  const Path extends string,
  Query extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Body = unknown,
>(dialect: Dialect, definition: Definition<Path, Query, Body>): Route {
  const { authorizationOf } = dialect;
  const route = defineRoute<Path, 'tenant', Query, Body>({
    ...UNDESCRIBED,
    ...definition,
    operationId: definition.path,
    access: { kind: 'tenant', ...definition.access, authorizationOf },
  });
  return {
    ...route,
    // The one place where refusals of these routes are rendered: their clients read `detail`, and statuses of their own.
    respond: async (c) => {
      try {
        return await route.respond(c);
      } catch (error: unknown) {
        if (!(error instanceof Refusal)) throw error;
        return refusalReply(error, dialect.statusOf(error.failure.code));
      }
    },
  };
}

function refusalReply({ failure, headers }: Refusal, status: number): Response {
  const { code, retry_after_s } = failure;
  const { retryable } = ERRORS[code];
  const response = reply(status, { detail: detailOf(failure, status), code, retryable }, { ...headers });
  if (retry_after_s !== undefined) response.headers.set('Retry-After', String(Math.ceil(retry_after_s)));
  return response;
}

/** Of a value that was wrong: a list of places, as their frameworks give it. */
function detailOf({ detail, violations }: Failure, status: number): unknown {
  if (status !== UNPROCESSABLE || violations === undefined || violations.length === 0) return detail;
  return violations.map(({ path, expected }) => ({
    type: 'value_error',
    loc: path.split('.'),
    msg: `expected ${expected}`,
  }));
}

/** The answer of a call that failed in a way that their servers say by a status. */
export function detailReply(status: number, detail: unknown): Response {
  return reply(status, { detail });
}
