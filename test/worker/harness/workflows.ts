/** Workflows by the API, over a host whose commands say what they do. */
import { expect } from 'vitest';
import { type Workflow, WorkflowSchema } from '../../../shared/workflow.ts';
import type { Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api } from './api.ts';
import { eventually } from './eventually.ts';

/** `out X` prints X, `fail` fails, `slow` runs into its deadline, `hold X` prints X once it is let go; everything else is quiet. */
export class ScriptedCommands {
  /** In the order in which the host was given them. */
  readonly ran: string[] = [];
  #release: () => void = () => undefined;

  readonly script: Script = async (execution) => {
    execution.started();
    const text = String(execution.arguments.command ?? execution.arguments.code);
    this.ran.push(text);
    const [verb, ...rest] = text.split(' ');
    if (verb === 'slow') return execution.finish({ status: 'timeout' });
    if (verb === 'fail') return execution.finish({ status: 'failed', exit_code: 1 });
    if (verb === 'hold') {
      const held = Promise.withResolvers<void>();
      this.#release = held.resolve;
      await held.promise;
    }
    if (verb === 'out' || verb === 'hold') await execution.write('stdout', `${rest.join(' ')}\n`);
    return execution.finish();
  };

  release(): void {
    this.#release();
  }
}

export const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });

export async function startWorkflow(body: unknown, options: ApiOptions = {}): Promise<Workflow> {
  const answer = await api('POST', '/v1/workflows', { token: await alice(), body, ...options });
  expect(answer.status, answer.text).toBe(202);
  return WorkflowSchema.parse(answer.json);
}

export async function readWorkflow(workflowId: string): Promise<Workflow> {
  const answer = await api('GET', `/v1/workflows/${workflowId}`, { token: await alice() });
  expect(answer.status, answer.text).toBe(200);
  return WorkflowSchema.parse(answer.json);
}

export function endedWorkflow({ workflow_id }: Workflow): Promise<Workflow> {
  return eventually(async () => {
    const workflow = await readWorkflow(workflow_id);
    expect(workflow.status).not.toBe('running');
    return workflow;
  });
}

export async function runWorkflow(body: unknown): Promise<Workflow> {
  return endedWorkflow(await startWorkflow(body));
}

export const shell = (command: unknown, more: object = {}) => ({
  tool_name: 'shell',
  arguments: { command },
  ...more,
});

export const statuses = ({ tasks }: Workflow) =>
  Object.fromEntries(Object.entries(tasks).map(([name, { status }]) => [name, status]));
