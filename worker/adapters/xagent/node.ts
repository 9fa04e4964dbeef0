/** A node of XAgent is a session of ours: its id comes back in a cookie, or in a header from clients without a jar. */
import { failure, type Outcome } from '../../../shared/errors.ts';
import type { Execution } from '../../../shared/execution.ts';
import { type OwnSession, ownSession } from '../../calls/own-session.ts';
import { Refusal, unwrap } from '../../middleware/refusal.ts';
import type { Exchange } from '../../routing/route.ts';
import { XAGENT_PATH } from './dialect.ts';

const COOKIE = 'node_id';
const HEADER = 'Node-Id';

export function nodeIdOf(headers: Headers): string | undefined {
  const given = headers.get(HEADER);
  if (given !== null) return given;
  const cookies = (headers.get('Cookie') ?? '').split(';').map((cookie) => cookie.trim());
  return cookies.find((cookie) => cookie.startsWith(`${COOKIE}=`))?.slice(COOKIE.length + 1);
}

/** It names a session and proves nothing: the token decides whose session it may be. */
export function nodeCookie(sessionId: string, origin: string): string {
  const secure = origin.startsWith('https:') ? '; Secure' : '';
  return `${COOKIE}=${sessionId}; Path=${XAGENT_PATH}; HttpOnly; SameSite=Strict${secure}`;
}

export async function nodeOf(exchange: Exchange<'tenant'>): Promise<OwnSession> {
  const id = nodeIdOf(exchange.request.headers);
  try {
    return await ownSession(exchange, id ?? '');
  } catch (error: unknown) {
    if (error instanceof Refusal) throw invalidNode(id);
    throw error;
  }
}

/** Their manager says so of a node that it does not know. */
export function invalidNode(id: string | undefined): Refusal {
  return new Refusal(failure('forbidden', `invalid node_id: ${(id ?? 'None').slice(0, 128)}`));
}

/** A session that is gone must not read as a tool that is not there. */
export function nodeExecution(exchange: Exchange<'tenant'>, outcome: Outcome<Execution>): Execution {
  if (!outcome.ok && (outcome.code === 'not_found' || outcome.code === 'session_deleted')) {
    throw invalidNode(nodeIdOf(exchange.request.headers));
  }
  return unwrap(outcome);
}
