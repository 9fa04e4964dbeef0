/** The run of one workflow, on the engine of Workflows: a step that has ended is never made twice, whatever restarts. */
import { WorkflowEntrypoint, type WorkflowEvent, type WorkflowStep } from 'cloudflare:workers';
import * as z from 'zod';
import type { Outcome } from '../../shared/errors.ts';
import { TenantSchema, WorkflowIdSchema } from '../../shared/ids.ts';
import { configurationOf } from '../configuration.ts';
import { reasonOf, Steps } from '../engine/steps.ts';
import type { Env } from '../env.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE, workflowCalls } from '../objects/object-calls.ts';
import { PlanSchema, type RunEnd, type WorkflowPort } from '../objects/workflow/port.ts';
import { GraphRun } from './graph-run.ts';
import { RunSessions } from './run-sessions.ts';
import { TaskCalls } from './task-calls.ts';

export const RunParametersSchema = z.strictObject({ tenant: TenantSchema, id: WorkflowIdSchema });
export type RunParameters = z.infer<typeof RunParametersSchema>;

export class WorkflowRun extends WorkflowEntrypoint<Env, RunParameters> {
  override async run(event: Readonly<WorkflowEvent<RunParameters>>, step: WorkflowStep): Promise<string> {
    const { tenant, id } = RunParametersSchema.parse(event.payload);
    const calls = workflowCalls(this.env, tenant, id);
    const record = async <T>(method: (stub: WorkflowPort) => Promise<Outcome<T>>): Promise<T> =>
      unwrap(await calls(method, SAFE));
    const steps = new Steps(step);
    const plan = await steps.once('plan', PlanSchema, () => record((stub) => stub.plan()));
    const context = {
      env: this.env,
      configuration: await configurationOf(this.env),
      waitUntil: (promise: Promise<unknown>) => this.ctx.waitUntil(promise),
      plan,
      steps,
      record,
    };
    const sessions = new RunSessions(context);
    const graph = new GraphRun(context, new TaskCalls(context, sessions));
    const end = await graph
      .run()
      .catch((error: unknown): RunEnd => ({ status: 'failed', reason: reasonOf(error) }));
    await sessions.end();
    await steps.once('ended', z.null(), () => record((stub) => stub.ended(end)));
    return end.status;
  }
}
