/** What is told of the end of a workflow, and to whom. Pure but for the id. */
import type { Event } from '../../../shared/event.ts';
import { newId } from '../../../shared/ids.ts';
import type { RunAddress } from '../runs/outbox.ts';
import type { Plan, RunEnd } from './port.ts';

export function finishedEvent(
  { workflowId, definition }: Plan,
  { status, reason }: RunEnd,
  finishedAt: string,
): Event {
  return {
    id: newId('evt'),
    type: 'workflow.finished',
    timestamp: finishedAt,
    data: { workflow_id: workflowId, name: definition.name ?? null, status, reason },
  };
}

export function addressOf({ workflowId, owner, callback, definition }: Plan): RunAddress {
  const origin = { kind: 'workflow' as const, workflowId };
  return { tenant: owner.tenant, origin, labels: definition.labels, callback };
}
