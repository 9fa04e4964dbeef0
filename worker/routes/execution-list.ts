/** The executions of a session, and the calls of it that wait for an approval or were not made, as one list. */
import type { Execution } from '../../shared/execution.ts';
import type { OwnSession } from '../calls/own-session.ts';
import { invalid } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { approvalCalls, SAFE } from '../objects/object-calls.ts';
import type { ExecutionPage } from '../objects/session/port.ts';
import type { Exchange } from '../routing/route.ts';
import { newestFirst } from './newest-first.ts';

/** How far each of the two was given: null from its beginning, `END` to its end. */
interface Place {
  session: string | null;
  approvals: { atMs: number; executionId: string } | typeof END | null;
}

const END = 'end';
/** Behind everything: who asks for it still hears whether the session is theirs. */
const NOTHING = '0';
const CURSOR = /^(\d{1,15}(?:\.\d{1,15})?|end)?(?:~(?:(\d{1,15})\.(exe_[A-Za-z0-9_-]{22})|(end))?)?$/;

export async function executionPage(
  exchange: Exchange<'tenant'>,
  session: OwnSession,
  { cursor, limit, inner }: { cursor?: string | undefined; limit: number; inner: boolean },
): Promise<ExecutionPage> {
  const place = placeOf(cursor);
  const read = async (count: number) => {
    const from = place.session === END ? NOTHING : (place.session ?? undefined);
    const page = { cursor: from, limit: count, inner };
    return unwrap(await session.call((stub) => stub.listExecutions(session.caller, page), SAFE));
  };
  const page = await read(limit);
  const waiting = await waitingCalls(exchange, session, place.approvals, limit + 1);
  const { entries, taken } = newestFirst([page.executions.map(asEntry), waiting.map(asEntry)], limit);
  const [ran = 0, waited = 0] = taken;
  const next: Place = {
    session: page.next_cursor ?? END,
    approvals:
      waited === waiting.length && waited < limit + 1 ? END : placeBehind(waiting[waited - 1], place),
  };
  // What of its page has no room here begins the next one.
  if (ran < page.executions.length) next.session = ran === 0 ? place.session : (await read(ran)).next_cursor;
  return { executions: entries.map(({ view }) => view), next_cursor: cursorOf(next) };
}

function asEntry(view: Execution): { view: Execution } {
  return { view };
}

async function waitingCalls(
  { env }: Exchange<'tenant'>,
  { caller, sessionId }: OwnSession,
  after: Place['approvals'],
  limit: number,
): Promise<Execution[]> {
  if (after === END) return [];
  const approvals = approvalCalls(env, caller.tenant);
  return unwrap(await approvals((stub) => stub.ofSession(caller, sessionId, { after, limit }), SAFE));
}

function placeBehind(last: Execution | undefined, { approvals }: Place): Place['approvals'] {
  if (last === undefined) return approvals;
  return { atMs: Date.parse(last.created_at), executionId: last.execution_id };
}

function placeOf(cursor: string | undefined): Place {
  if (cursor === undefined) return { session: null, approvals: null };
  const parts = CURSOR.exec(cursor);
  if (parts === null) throw invalid([{ path: 'query.cursor', expected: 'next_cursor of a former answer' }]);
  const [, session, atMs, executionId, end] = parts;
  return {
    session: session ?? null,
    approvals:
      end === END
        ? END
        : atMs === undefined || executionId === undefined
          ? null
          : { atMs: Number(atMs), executionId },
  };
}

function cursorOf({ session, approvals }: Place): string | null {
  if (session === END && approvals === END) return null;
  const behind =
    approvals === null ? '' : approvals === END ? END : `${approvals.atMs}.${approvals.executionId}`;
  return `${session ?? ''}~${behind}`;
}
