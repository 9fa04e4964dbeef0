/** A workflow as the API shows it. Pure. */
import { KERNELS } from '../../../shared/code-mode.ts';
import type { TaskCall, TaskStatus, Workflow, WorkflowEntry } from '../../../shared/workflow.ts';
import type { WorkflowHead } from './store.ts';

interface Rows {
  sessions: readonly { name: string; session_id: string }[];
  tasks: readonly { name: string; status: TaskStatus; reason: string | null }[];
  calls: readonly { task: string; call: TaskCall }[];
}

export function workflowEntry(head: WorkflowHead): WorkflowEntry {
  const { definition, workflowId } = head.plan;
  return {
    workflow_id: workflowId,
    name: definition.name ?? null,
    labels: definition.labels,
    status: head.status,
    reason: head.reason,
    created_at: head.created_at,
    finished_at: head.finished_at,
  };
}

export function workflowView(head: WorkflowHead, { sessions, tasks, calls }: Rows): Workflow {
  const { definition } = head.plan;
  const stateOf = new Map(tasks.map((task) => [task.name, task]));
  return {
    ...workflowEntry(head),
    sessions: Object.fromEntries(sessions.map(({ name, session_id }) => [name, session_id])),
    tasks: Object.fromEntries(
      Object.entries(definition.tasks).map(([name, { tool_name, program }]) => [
        name,
        {
          tool_name: program === undefined ? (tool_name ?? '') : KERNELS[program.language],
          kind: program === undefined ? ('tool' as const) : ('program' as const),
          status: stateOf.get(name)?.status ?? 'pending',
          reason: stateOf.get(name)?.reason ?? null,
          calls: calls.filter(({ task }) => task === name).map(({ call }) => call),
        },
      ]),
    ),
  };
}
