/** A workflow as the API shows it. Pure. */
import type { TaskCall, TaskStatus, Workflow } from '../../../shared/workflow.ts';
import type { WorkflowHead } from './store.ts';

interface Rows {
  sessions: readonly { name: string; session_id: string }[];
  tasks: readonly { name: string; status: TaskStatus; reason: string | null }[];
  calls: readonly { task: string; call: TaskCall }[];
}

export function workflowView(head: WorkflowHead, { sessions, tasks, calls }: Rows): Workflow {
  const { definition, workflowId } = head.plan;
  const stateOf = new Map(tasks.map((task) => [task.name, task]));
  return {
    workflow_id: workflowId,
    name: definition.name ?? null,
    status: head.status,
    reason: head.reason,
    sessions: Object.fromEntries(sessions.map(({ name, session_id }) => [name, session_id])),
    tasks: Object.fromEntries(
      Object.entries(definition.tasks).map(([name, { tool_name }]) => [
        name,
        {
          tool_name,
          status: stateOf.get(name)?.status ?? 'pending',
          reason: stateOf.get(name)?.reason ?? null,
          calls: calls.filter(({ task }) => task === name).map(({ call }) => call),
        },
      ]),
    ),
    created_at: head.created_at,
    finished_at: head.finished_at,
  };
}
