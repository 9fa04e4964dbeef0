/** How a stack is started whose processes end themselves at a step that is planned while it runs. */
import { join } from 'node:path';

/** `hook` is loaded by each of its processes and looks for the plan. */
export function killPlanEnvironment(hook: string, stateDir: string): NodeJS.ProcessEnv {
  return {
    NODE_OPTIONS: `--import=${hook}`,
    SANDGATE_TEST_KILL_PLAN: killPlanPath(stateDir),
    // What is made ahead is of no session, and would be looked for in vain.
    SANDGATE_POOL_CEILING: '0',
  };
}

export function killPlanPath(stateDir: string): string {
  return join(stateDir, 'kill-plan');
}
