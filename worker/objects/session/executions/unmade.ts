/** The end of a call that was asked for in the session and never made in it: it was denied, withdrawn, forgotten or refused. */
import type { SealedCallback } from '../../../../shared/callback.ts';
import type { Execution } from '../../../../shared/execution.ts';
import type { SessionRuntime } from '../runtime.ts';

export function noteUnmade(
  { row, executions, edgeCalls, events }: SessionRuntime,
  eventId: string,
  { execution, callback }: { execution: Execution; callback: SealedCallback | null },
): void {
  const { execution_id } = execution;
  // It came here though nobody heard of it: then its end is told, or will be, where it is seen.
  const isMade =
    executions.find(execution_id) !== undefined || edgeCalls.find(execution_id, Date.now()) !== undefined;
  if (isMade) return;
  // Of a session that is over nobody reads the events, but who asked to be told is.
  if (row.isLive || callback !== null) events.finished(execution, { id: eventId, callback });
}
