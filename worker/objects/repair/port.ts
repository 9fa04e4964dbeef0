/** What others may ask of the object of a repair run. */
import * as z from 'zod';
import { SealedCallbackSchema } from '../../../shared/callback.ts';
import type { Outcome } from '../../../shared/errors.ts';
import { RepairRunIdSchema, SessionIdSchema } from '../../../shared/ids.ts';
import {
  CreateRepairRunSchema,
  type RepairAttempt,
  type RepairRun,
  RepairStatusSchema,
  RepairStopSchema,
} from '../../../shared/repair.ts';
import type { Caller } from '../caller.ts';
import { OwnerSchema } from '../owner.ts';

/** What a run works from. */
export const RepairPlanSchema = z.object({
  repairRunId: RepairRunIdSchema,
  sessionId: SessionIdSchema,
  owner: OwnerSchema,
  request: CreateRepairRunSchema.omit({ callback: true }),
  /** Of its session when it began. */
  labels: z.record(z.string(), z.string()).default({}),
  /** Where its end is told. */
  callback: SealedCallbackSchema.nullable().default(null),
});
export type RepairPlan = z.infer<typeof RepairPlanSchema>;

export const RepairEndSchema = z.object({
  status: RepairStatusSchema.exclude(['running']),
  stoppedBecause: RepairStopSchema,
  detail: z.string().nullable(),
});
export type RepairEnd = z.infer<typeof RepairEndSchema>;

export interface RepairPort {
  /** Resolves when it is written and its run is under way. Called again with the same id it joins. */
  start(plan: RepairPlan): Promise<Outcome<RepairRun>>;
  describe(caller: Caller): Promise<Outcome<RepairRun>>;
  /** The second time it is the same. What runs is interrupted when this resolves. */
  cancel(caller: Caller): Promise<Outcome<RepairRun>>;

  /** From its run, each of them as often as wanted. */
  plan(): Promise<Outcome<RepairPlan>>;
  /** The attempt as it stands now; false where the run is to stop. */
  attempted(attempt: RepairAttempt): Promise<Outcome<boolean>>;
  ended(end: RepairEnd): Promise<Outcome<null>>;

  /** What was told of its end is delivered, or written down to be. */
  eventsTaken(eventIds: string[]): Promise<void>;
}
