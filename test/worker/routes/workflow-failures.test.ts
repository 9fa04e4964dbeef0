/** What the failure of one task means for the others, and the bounds of a fan-out. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { MAX_FAN_OUT, type Workflow } from '../../../shared/workflow.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import {
  alice,
  endedWorkflow,
  readWorkflow,
  runWorkflow,
  ScriptedCommands,
  shell,
  startWorkflow,
  statuses,
} from '../harness/workflows.ts';

let host: HostDouble;
const commands = new ScriptedCommands();

beforeAll(async () => {
  host = await connectFakeHost({ script: commands.script });
  const body = { description: 'Looks up', kind: 'http', url: 'https://lookups.example.com/find' };
  const put = await api('PUT', '/v1/tools/lookup', { token: await alice(), body });
  expect(put.status, put.text).toBeLessThan(300);
});
afterEach(() => {
  vi.restoreAllMocks();
  commands.ran.length = 0;
});
afterAll(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

describe('a task that may fail', () => {
  test('fails without its workflow, and what waits for its success is skipped', async () => {
    const workflow = await runWorkflow({
      tasks: {
        try: shell('fail', { may_fail: true }),
        next: shell('out next', { depends_on: ['try'] }),
        instead: shell('out instead', { depends_on: ['try'], run_on: 'failure' }),
        beside: shell('out beside', { depends_on: ['instead'] }),
      },
    });
    expect(statuses(workflow)).toEqual({
      try: 'failed',
      next: 'skipped',
      instead: 'succeeded',
      beside: 'succeeded',
    });
    expect(workflow).toMatchObject({ status: 'succeeded', reason: null });
    expect(commands.ran).toEqual(['fail', 'out instead', 'out beside']);
  });

  test('does not excuse another one', async () => {
    const workflow = await runWorkflow({
      tasks: { try: shell('fail', { may_fail: true }), must: shell('fail', { depends_on: [] }) },
    });
    expect(workflow.status).toBe('failed');
    expect(workflow.reason).toMatch(/^must: exe_\S+ ended as failed/);
  });
});

describe('a task beside one that failed', () => {
  /** Its last task has not begun when `bad` has failed, and does not depend on it. */
  async function runBesideFailure(more: object): Promise<Workflow> {
    const started = await startWorkflow({
      ...more,
      tasks: {
        late: shell('out late', { depends_on: ['long'] }),
        long: shell('hold on'),
        bad: { tool_name: 'lookup', depends_on: [] },
      },
    });
    await eventually(async () => {
      expect(commands.ran).toEqual(['hold on']);
      expect(statuses(await readWorkflow(started.workflow_id))).toMatchObject({ bad: 'failed' });
    });
    commands.release();
    return endedWorkflow(started);
  }
  const down = () => vi.spyOn(globalThis, 'fetch').mockResolvedValue(new Response('down', { status: 503 }));

  test('does not begin, and the workflow says whose failure it was', async () => {
    down();
    const workflow = await runBesideFailure({});
    expect(workflow).toMatchObject({
      status: 'failed',
      tasks: {
        long: { status: 'succeeded' },
        late: { status: 'cancelled', reason: 'another task failed', calls: [] },
      },
    });
    expect(workflow.reason).toMatch(/^bad: exe_\S+ ended as failed/);
    expect(commands.ran).toEqual(['hold on']);
  });

  test('runs where the workflow goes on, which fails nevertheless', async () => {
    down();
    const workflow = await runBesideFailure({ on_failure: 'continue' });
    expect(statuses(workflow)).toEqual({ long: 'succeeded', late: 'succeeded', bad: 'failed' });
    expect(workflow.status).toBe('failed');
    expect(workflow.reason).toMatch(/^bad: exe_\S+ ended as failed/);
    expect(commands.ran).toEqual(['hold on', 'out late']);
  });
});

describe('a fan-out', () => {
  test('makes no more calls at once than it may', async () => {
    let asked = 0;
    let answered = 0;
    let most = 0;
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => {
      asked += 1;
      const place = asked;
      most = Math.max(most, asked - answered);
      // By timers of its own: what one object waits for, another cannot resolve.
      await eventually(() => expect(answered).toBeGreaterThanOrEqual(place));
      return Response.json({});
    });
    const started = await startWorkflow({
      input: [1, 2, 3, 4, 5],
      tasks: { each: { tool_name: 'lookup', for_each: { $input: '' }, max_parallel: 2 } },
    });
    for (const together of [2, 3, 4, 5, 5]) {
      await eventually(() => expect(asked).toBe(together));
      answered += 1;
    }
    expect((await endedWorkflow(started)).status).toBe('succeeded');
    expect(most).toBe(2);
  });

  test('over more items than it may have makes none of its calls', async () => {
    const workflow = await runWorkflow({
      input: Array.from({ length: MAX_FAN_OUT + 1 }, (_, n) => `out ${n}`),
      tasks: { each: shell({ $item: '' }, { for_each: { $input: '' } }) },
    });
    const reason = `for_each: a list of at most ${MAX_FAN_OUT} items was expected`;
    expect(workflow).toMatchObject({
      status: 'failed',
      reason: `each: ${reason}`,
      tasks: { each: { status: 'failed', reason, calls: [] } },
    });
    expect(commands.ran).toEqual([]);
  });
});
