/** One attempt at a task, and a call of it that may take days. */
import * as z from 'zod';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import type { CallResult } from '../../shared/workflow.ts';
import { refusedCall } from './call-result.ts';

export interface Attempt {
  task: string;
  item: number | null;
  attempt: number;
}

/** What may take days is begun in one step and looked at in others. */
export const AwaitedSchema = z.strictObject({
  awaited: z.enum(['program', 'approval']),
  execution_id: ExecutionIdSchema,
  timeout_ms: z.number(),
});
export type AwaitedCall = z.infer<typeof AwaitedSchema>;

export function outOfTime(): CallResult {
  return refusedCall({ code: 'overloaded', detail: 'the time of the workflow is over' });
}
