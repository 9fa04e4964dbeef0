/** What the parts of a run share. */
import type { Outcome } from '../../shared/errors.ts';
import { newId } from '../../shared/ids.ts';
import type { Configuration } from '../configuration.ts';
import type { Env } from '../env.ts';
import type { Plan, WorkflowPort } from '../objects/workflow/port.ts';
import type { Exchange } from '../routes/route.ts';
import type { Steps } from './steps.ts';

export interface RunContext {
  env: Env;
  configuration: Configuration;
  waitUntil: (promise: Promise<unknown>) => void;
  plan: Plan;
  steps: Steps;
  record: <T>(method: (stub: WorkflowPort) => Promise<Outcome<T>>) => Promise<T>;
}

/** As if the owner made the call now, with the rights that it had when it started the workflow. */
export function ownersExchange({ env, configuration, waitUntil, plan }: RunContext): Exchange<'tenant'> {
  const { scopes, ...owner } = plan.owner;
  return {
    request: new Request(configuration.origin),
    env,
    configuration,
    principal: { kind: 'tenant', ...owner, scopes: new Set(scopes) },
    requestId: newId('req'),
    receivedMs: Date.now(),
    waitUntil,
  };
}
