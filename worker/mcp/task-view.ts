/** An execution as a task of the extension `io.modelcontextprotocol/tasks`. Pure: what is known goes in. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { KEYS_LIVE_MS } from '../objects/session/retention/retention.ts';
import { executionText } from '../rendering/execution-text.ts';

const MIN_POLL_INTERVAL_MS = 500;
const MAX_POLL_INTERVAL_MS = 10_000;
/** One that has run for long is not over the next moment. */
const POLLS_PER_AGE = 10;
const MAX_MESSAGE_CHARACTERS = 2_000;

export type TaskStatus = 'working' | 'completed' | 'cancelled';

export interface Task {
  taskId: string;
  status: TaskStatus;
  statusMessage: string;
  createdAt: string;
  lastUpdatedAt: string;
  /** From its creation: while it runs, and as long behind its end as its call can be found again. */
  ttlMs: number;
  pollIntervalMs: number;
}

export function taskView(taskId: string, execution: Execution, nowMs: number): Task {
  const { created_at, started_at, finished_at } = execution;
  const createdAtMs = Date.parse(created_at);
  const ageMs = Math.max(0, nowMs - createdAtMs);
  const livedMs = finished_at === null ? ageMs : Math.max(0, Date.parse(finished_at) - createdAtMs);
  return {
    taskId,
    status: statusOf(execution),
    statusMessage: messageOf(execution),
    createdAt: created_at,
    lastUpdatedAt: finished_at ?? started_at ?? created_at,
    ttlMs: livedMs + KEYS_LIVE_MS,
    pollIntervalMs: Math.round(
      Math.min(MAX_POLL_INTERVAL_MS, Math.max(MIN_POLL_INTERVAL_MS, ageMs / POLLS_PER_AGE)),
    ),
  };
}

/** With what the call would have been answered with, where it has ended by itself. */
export function detailedTask(task: Task, result: () => CallToolResult): Task & { result?: CallToolResult } {
  if (task.status !== 'completed') return task;
  // As the call itself would have been answered in this era, where every result says its type.
  return { ...task, result: { ...result(), resultType: 'complete' } };
}

function statusOf({ status }: Execution): TaskStatus {
  if (!isTerminal(status)) return 'working';
  return status === 'interrupted' || status === 'cancelled' ? 'cancelled' : 'completed';
}

/** A client cannot give an approval: whoever may is asked elsewhere. */
function messageOf(execution: Execution): string {
  const { status, approval } = execution;
  if (status === 'waiting' && approval?.status === 'waiting') {
    return `waits for an approval until ${approval.expires_at}`;
  }
  if (statusOf(execution) === 'cancelled') return executionText(execution, MAX_MESSAGE_CHARACTERS);
  return status;
}
