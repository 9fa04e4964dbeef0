/** The session that a path names, if its id was made for the caller's tenant: else no object is woken. */
import { failure } from '../../shared/errors.ts';
import { ExecutionIdSchema, isSessionIdOf } from '../../shared/ids.ts';
import type { ToolPolicy } from '../../shared/tool-policy.ts';
import { Refusal } from '../middleware/refusal.ts';
import type { Caller } from '../objects/caller.ts';
import { type ObjectCalls, sessionCalls } from '../objects/object-calls.ts';
import type { SessionPort } from '../objects/session/port.ts';
import type { Exchange } from '../routing/route.ts';

export interface OwnSession {
  sessionId: string;
  caller: Caller;
  call: ObjectCalls<SessionPort>;
  /** To what calls of it are held. */
  toolPolicy: ToolPolicy | null;
}

export async function ownSession(exchange: Exchange<'tenant'>, sessionId: string): Promise<OwnSession> {
  const { tenant } = exchange.principal;
  if (!(await isSessionIdOf(exchange.configuration.tagKey, tenant, sessionId))) {
    throw notFound('no such session, or not yours');
  }
  return sessionOf(exchange, sessionId);
}

/** For ids that this edge has just made. */
export function sessionOf(exchange: Exchange<'tenant'>, sessionId: string): OwnSession {
  return {
    sessionId,
    caller: callerOf(exchange),
    call: sessionCalls(exchange.env, exchange.principal.tenant, sessionId),
    toolPolicy: exchange.principal.toolPolicy,
  };
}

export function callerOf(exchange: Exchange<'tenant'>): Caller {
  return { tenant: exchange.principal.tenant, subject: exchange.principal.subject };
}

export function executionIdOf(text: string): string {
  if (ExecutionIdSchema.safeParse(text).success) return text;
  throw notFound('no such execution, or not yours');
}

export function notFound(detail: string): Refusal {
  return new Refusal(failure('not_found', detail));
}
