/** What is told of the end of a repair run, and to whom: never what the model or the code said. Pure but for the id. */
import type { Event } from '../../../shared/event.ts';
import { newId } from '../../../shared/ids.ts';
import type { RunAddress } from '../runs/outbox.ts';
import type { RepairEnd, RepairPlan } from './port.ts';

export function finishedEvent(
  { repairRunId, sessionId }: RepairPlan,
  { status, stoppedBecause }: RepairEnd,
  { attempts, finishedAt }: { attempts: number; finishedAt: string },
): Event {
  return {
    id: newId('evt'),
    type: 'repair_run.finished',
    timestamp: finishedAt,
    data: {
      session_id: sessionId,
      repair_run_id: repairRunId,
      status,
      stopped_because: stoppedBecause,
      attempts,
    },
  };
}

export function addressOf({ repairRunId, owner, labels, callback }: RepairPlan): RunAddress {
  return { tenant: owner.tenant, origin: { kind: 'repair_run', repairRunId }, labels, callback };
}
