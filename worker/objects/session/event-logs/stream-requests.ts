/** Answers of a session object that are streams, and the failures in their place. */
import { ERRORS, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { cursorOf, find, readersFault, streamOf } from '../executions/calls.ts';
import { readCaller, readEventsPath } from '../internal-request.ts';
import { notFound } from '../lifecycle/creation.ts';
import { INTERNAL_HEADERS } from '../port.ts';
import type { SessionRuntime } from '../runtime.ts';

/** What happens in the session. */
export function openSessionEvents(session: SessionRuntime, request: Request): Outcome<Response> {
  const caller = readCaller(request);
  const isOwn = caller !== undefined && session.row.ownedBy(caller) !== undefined;
  return isOwn ? session.eventStreams.open(request.headers.get(INTERNAL_HEADERS.lastEventId)) : notFound();
}

/** What an execution says. */
export function openExecutionEvents(session: SessionRuntime, request: Request): Outcome<Response> {
  const caller = readCaller(request);
  const target = readEventsPath(request);
  if (caller === undefined || target === undefined) return failure('not_found', 'no such stream');
  const found = find(session, caller, target.executionId);
  if (!found.ok) return found;
  const fault = readersFault(session);
  if (fault !== undefined) return fault;
  const cursor = cursorOf(request.headers.get(INTERNAL_HEADERS.lastEventId), target.executionId);
  return success(streamOf(session, found.value, { cursor, encoding: target.encoding }));
}

/** A failure is for the front to render: its status says that the body is one. */
export function answerOf(opened: Outcome<Response>): Response {
  return opened.ok ? opened.value : Response.json(opened, { status: ERRORS[opened.code].status });
}
