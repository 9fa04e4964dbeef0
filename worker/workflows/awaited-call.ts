/** One attempt at a task, a call of it that may take days, and one that the end of its workflow's time cut. */
import * as z from 'zod';
import { ExecutionIdSchema } from '../../shared/ids.ts';
import { type CallResult, CallResultSchema } from '../../shared/workflow.ts';
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
  /** Its time is what was left of its workflow's, not its own. */
  is_shortened: z.boolean().default(false),
});
export type AwaitedCall = z.infer<typeof AwaitedSchema>;

/** What a step keeps of a call. */
export const MadeCallSchema = CallResultSchema.extend({
  /** The time of the workflow was over, not that of the task. */
  is_out_of_time: z.boolean().default(false),
});
export type MadeCall = z.infer<typeof MadeCallSchema>;

/** Nothing was run, or nobody looks any more at what was. */
export function outOfTime(): MadeCall {
  const result = refusedCall({ code: 'overloaded', detail: 'the time of the workflow is over' });
  return { ...result, is_out_of_time: true };
}

export function madeCall(result: CallResult, { isShortened }: { isShortened: boolean }): MadeCall {
  return { ...result, is_out_of_time: isShortened && result.status === 'timeout' };
}
