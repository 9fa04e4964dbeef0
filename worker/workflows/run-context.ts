/** What the parts of a run share. */
import type { Outcome } from '../../shared/errors.ts';
import type { RunSurroundings } from '../engine/owner.ts';
import type { Steps } from '../engine/steps.ts';
import type { Plan, WorkflowPort } from '../objects/workflow/port.ts';

export interface RunContext extends RunSurroundings {
  plan: Plan;
  steps: Steps;
  record: <T>(method: (stub: WorkflowPort) => Promise<Outcome<T>>) => Promise<T>;
}
