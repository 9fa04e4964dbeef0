/** What others may ask of a workflow's object. */
import * as z from 'zod';
import { SealedCallbackSchema } from '../../../shared/callback.ts';
import type { Outcome } from '../../../shared/errors.ts';
import { WorkflowIdSchema } from '../../../shared/ids.ts';
import {
  CreateWorkflowSchema,
  type TaskCall,
  type TaskStatus,
  type Workflow,
  WorkflowStatusSchema,
} from '../../../shared/workflow.ts';
import type { Caller } from '../caller.ts';
import { OwnerSchema } from '../owner.ts';

/** What a run works from. */
export const PlanSchema = z.object({
  workflowId: WorkflowIdSchema,
  owner: OwnerSchema,
  definition: CreateWorkflowSchema,
  endsBy: z.number(),
  /** Where its end is told. */
  callback: SealedCallbackSchema.nullable().default(null),
});
export type Plan = z.infer<typeof PlanSchema>;

/** How a run ended. */
export const RunEndSchema = z.object({
  status: WorkflowStatusSchema.exclude(['running']),
  reason: z.string().nullable(),
});
export type RunEnd = z.infer<typeof RunEndSchema>;

export interface NamedCall extends TaskCall {
  task: string;
}

export interface WorkflowPort {
  /** Resolves when it is written and its run is under way. Called again with the same id it joins. */
  start(plan: Plan): Promise<Outcome<Workflow>>;
  describe(caller: Caller): Promise<Outcome<Workflow>>;
  /** The second time it is the same. What runs is stopped when this resolves. */
  cancel(caller: Caller): Promise<Outcome<Workflow>>;

  /** From its run, each of them as often as wanted. */
  plan(): Promise<Outcome<Plan>>;
  sessionNamed(name: string, sessionId: string, isOwn: boolean): Promise<Outcome<null>>;
  /** Whether the task may begin, or why not. */
  taskBegins(task: string): Promise<Outcome<{ refusal: RunEnd['status'] | null }>>;
  callBegun(call: NamedCall): Promise<Outcome<null>>;
  taskEnded(task: string, status: TaskStatus, reason: string | null): Promise<Outcome<null>>;
  ended(end: RunEnd): Promise<Outcome<null>>;

  /** What was told of its end is delivered, or written down to be. */
  eventsTaken(eventIds: string[]): Promise<void>;
}
