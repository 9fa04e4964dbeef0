import { describe, expect, test } from 'vitest';
import { type Workflow, WorkflowSchema } from '../../shared/workflow.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();

async function read(workflowId: string): Promise<Workflow> {
  return (await stack().api.json(WorkflowSchema, 'GET', `/v1/workflows/${workflowId}`)).value;
}

describe('a workflow on the real engine', () => {
  test('goes on after workerd was killed, and makes no call twice', {
    timeout: 4 * PATIENCE_MS,
  }, async () => {
    const mark = (name: string) => `echo ${name} >> /workspace/marks`;
    const session = await stack().open();
    const started = await stack().api.json(WorkflowSchema, 'POST', '/v1/workflows', {
      body: {
        sessions: { main: { session_id: session.id } },
        input: ['one', 'two', 'three'],
        tasks: {
          first: { tool_name: 'shell', arguments: { command: `${mark('first')}; echo '{"bases": [2, 3]}'` } },
          each: {
            tool_name: 'shell',
            arguments: { command: `${mark('each')}; sleep 2` },
            for_each: { $input: '' },
            max_parallel: 1,
            depends_on: ['first'],
          },
          power: {
            tool_name: 'python',
            arguments: { code: 'import json\nprint(json.dumps([2 ** 10, 3 ** 10]))' },
            depends_on: ['first'],
          },
          last: {
            tool_name: 'shell',
            arguments: { command: mark('last') },
            when: { value: { $from: 'power', path: '/json/0' }, equals: 1_024 },
            depends_on: ['each'],
          },
        },
      },
    });
    const { workflow_id } = started.value;
    await until('the first call of the list runs', PATIENCE_MS, async () =>
      (await read(workflow_id)).tasks.each?.calls.length === 1 ? true : undefined,
    );
    await stack().restartEdge();
    const ended = await until('it has ended', 2 * PATIENCE_MS, async () => {
      const workflow = await read(workflow_id);
      return workflow.status === 'running' ? undefined : workflow;
    });
    expect(ended).toMatchObject({ status: 'succeeded', reason: null });
    expect(ended.tasks.each?.calls.map(({ item, attempt, status }) => [item, attempt, status])).toEqual([
      [0, 1, 'succeeded'],
      [1, 1, 'succeeded'],
      [2, 1, 'succeeded'],
    ]);
    const { stdout } = await session.sh('cat /workspace/marks');
    expect(stdout.trimEnd().split('\n')).toEqual(['first', 'each', 'each', 'each', 'last']);
  });
});
