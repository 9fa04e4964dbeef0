/** Stops what runs, or was to run: by request, and where its host does not answer. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { SessionLink } from '../link/link.ts';
import { type ExecutionRecord, isToBeSent } from '../rows/records.ts';
import type { SessionParts } from '../session-parts.ts';
import type { Dispatch } from './dispatch.ts';
import type { Executions } from './executions.ts';
import type { UnresponsiveLanes } from './unresponsive-lanes.ts';

interface StopParts {
  readonly executions: Executions;
  readonly dispatch: Dispatch;
  readonly link: SessionLink;
}

/** Without a name, whatever runs is meant, or else the first that waits. */
export async function interruptIn(
  session: SessionParts,
  executionId: string | null,
): Promise<Outcome<{ execution_id: string | null }>> {
  const { executions, dispatch, waking } = session;
  const [first, ...others] = executions.inFlight;
  const record = executionId === null ? (first ?? executions.open[0]) : executions.find(executionId);
  if (executionId === null) for (const other of others) await dispatch.interrupt(other);
  if (record === undefined) {
    return executionId === null ? success({ execution_id: null }) : failure('not_found', 'no such execution');
  }
  if (!isToBeSent(record)) {
    const woken = await waking.wake();
    if (!woken.ok) return woken;
  }
  const stopped = await stop(session, record);
  return stopped.ok ? success({ execution_id: record.executionId }) : stopped;
}

/** What was not sent yet never is. */
export async function stop(
  { executions, dispatch }: StopParts,
  record: ExecutionRecord,
): Promise<Outcome<null>> {
  if (!isToBeSent(record)) return dispatch.interrupt(record);
  executions.end(record, { status: 'cancelled', reason: 'interrupted' });
  return success(null);
}

/** Its end was not seen in time. */
export function giveUp(
  { executions, dispatch, link }: StopParts,
  lanes: UnresponsiveLanes,
  record: ExecutionRecord,
): void {
  // Whatever still runs of it should not meet the next call, which therefore waits a moment.
  if (link.isUp) {
    void dispatch.interrupt(record);
    lanes.hold(dispatch.laneOf(record), record.n);
  }
  executions.end(record, { status: 'unknown', reason: 'host_unresponsive' });
}
