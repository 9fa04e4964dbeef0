/** A repair run on the engine of Workflows: attempt, and where it fails take it back, ask the model, attempt again. */
import { WorkflowEntrypoint, type WorkflowEvent, type WorkflowStep } from 'cloudflare:workers';
import * as z from 'zod';
import type { Outcome } from '../../shared/errors.ts';
import { RepairRunIdSchema, TenantSchema } from '../../shared/ids.ts';
import type { RepairAttempt } from '../../shared/repair.ts';
import { configurationOf } from '../configuration.ts';
import { reasonOf, Steps } from '../engine/steps.ts';
import type { Env } from '../env.ts';
import { unwrap } from '../middleware/refusal.ts';
import { repairCalls, SAFE } from '../objects/object-calls.ts';
import { type RepairEnd, RepairPlanSchema, type RepairPort } from '../objects/repair/port.ts';
import { patchOf } from './patch.ts';
import { Repair } from './repair.ts';

export const RepairParametersSchema = z.strictObject({ tenant: TenantSchema, id: RepairRunIdSchema });
export type RepairParameters = z.infer<typeof RepairParametersSchema>;

export class RepairRun extends WorkflowEntrypoint<Env, RepairParameters> {
  override async run(event: Readonly<WorkflowEvent<RepairParameters>>, step: WorkflowStep): Promise<string> {
    const { tenant, id } = RepairParametersSchema.parse(event.payload);
    const calls = repairCalls(this.env, tenant, id);
    const record = async <T>(method: (stub: RepairPort) => Promise<Outcome<T>>): Promise<T> =>
      unwrap(await calls(method, SAFE));
    const steps = new Steps(step);
    const plan = await steps.once('plan', RepairPlanSchema, () => record((stub) => stub.plan()));
    const surroundings = {
      env: this.env,
      configuration: await configurationOf(this.env),
      waitUntil: (promise: Promise<unknown>) => this.ctx.waitUntil(promise),
    };
    const note = (attempt: RepairAttempt) => record((stub) => stub.attempted(attempt));
    const end = await new Repair({ surroundings, plan, steps, note, patchOf }).run().catch(
      (error: unknown): RepairEnd => ({
        status: 'failed',
        stoppedBecause: 'refused',
        detail: reasonOf(error),
      }),
    );
    await steps.once('ended', z.null(), () => record((stub) => stub.ended(end)));
    return end.status;
  }
}
