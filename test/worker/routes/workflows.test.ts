import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { type Workflow, WorkflowSchema } from '../../../shared/workflow.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
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

/** Longer than a busy machine takes to begin a task, shorter than any lease. */
const WORKFLOW_TIMEOUT_S = 20;

let host: HostDouble;
const commands = new ScriptedCommands();
const { ran, script } = commands;

beforeAll(async () => {
  host = await connectFakeHost({ script });
});
afterAll(() => {
  expect(host.failures).toEqual([]);
  host.close();
});

async function run(body: unknown): Promise<Workflow> {
  ran.length = 0;
  return runWorkflow(body);
}

describe('a workflow', () => {
  test('runs its tasks in the order of their dependencies, and hands on what they gave', async () => {
    const workflow = await run({
      name: 'greeting',
      input: { greeting: 'out hello' },
      tasks: {
        first: shell({ $input: '/greeting' }),
        second: shell({ $join: ['out ', { $from: 'third', path: '/stdout' }] }),
        third: shell('out of order', { depends_on: ['first'] }),
      },
    });
    expect(workflow).toMatchObject({ name: 'greeting', status: 'succeeded', reason: null });
    expect(ran).toEqual(['out hello', 'out of order', 'out of order\n']);
    expect(Object.keys(workflow.sessions)).toEqual(['main']);
    const [call] = workflow.tasks.first?.calls ?? [];
    expect(call).toMatchObject({ item: null, attempt: 1, status: 'succeeded' });
  });

  test('makes one call for each item of a list', async () => {
    const workflow = await run({
      tasks: {
        list: shell('out [{"n": 1}, {"n": 2}, {"n": 3}]'),
        each: shell({ $item: '' }, { for_each: { $input: '' } }),
        numbers: {
          tool_name: 'python',
          arguments: { code: { $item: '/n' } },
          for_each: { $from: 'list', path: '/json' },
        },
      },
      input: ['out a', 'out b'],
    });
    expect(ran.toSorted()).toEqual(['out [{"n": 1}, {"n": 2}, {"n": 3}]', 'out a', 'out b']);
    expect(workflow.tasks.each?.calls.map(({ item }) => item).toSorted()).toEqual([0, 1]);
    expect(workflow.tasks.numbers).toMatchObject({ status: 'failed', calls: [] });
    expect(workflow.tasks.numbers?.reason).toContain('arguments');
    expect(workflow.status).toBe('failed');
  });

  test('skips what its condition excludes, and everything that waits for it', async () => {
    const workflow = await run({
      input: { deploy: false },
      tasks: {
        build: shell('out 3'),
        deploy: shell('out deployed', {
          depends_on: ['build'],
          when: { value: { $input: '/deploy' }, equals: true },
        }),
        after: shell('out after', { depends_on: ['deploy'] }),
        many: shell('out many', {
          when: { all: [{ value: { $from: 'build', path: '/json' }, greater_than: 2 }] },
        }),
      },
    });
    expect(statuses(workflow)).toEqual({
      build: 'succeeded',
      deploy: 'skipped',
      after: 'skipped',
      many: 'succeeded',
    });
    expect(workflow.status).toBe('succeeded');
  });

  test('stops at a failure, but runs what was made for it', async () => {
    const workflow = await run({
      tasks: {
        bad: shell('fail'),
        next: shell('out never', { depends_on: ['bad'] }),
        clean: shell('out cleaned', { depends_on: ['bad'], run_on: 'failure' }),
        report: shell({ $from: 'bad', path: '/status' }, { run_on: 'always' }),
      },
    });
    expect(statuses(workflow)).toEqual({
      bad: 'failed',
      next: 'skipped',
      clean: 'succeeded',
      report: 'succeeded',
    });
    expect(workflow).toMatchObject({ status: 'failed' });
    expect(workflow.reason).toMatch(/^bad: exe_\S+ ended as failed/);
    expect(ran.toSorted()).toEqual(['fail', 'failed', 'out cleaned']);
  });

  test('ends the sessions that were made for it, and leaves those that it was given', async () => {
    const created = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
    const { session_id } = created.json as { session_id: string };
    const workflow = await run({
      sessions: { mine: { session_id }, other: { create: {} } },
      tasks: { a: shell('out a', { session: 'mine' }), b: shell('out b', { session: 'other' }) },
    });
    expect(workflow.sessions.mine).toBe(session_id);
    const state = async (id: string | undefined) =>
      (await api('GET', `/v1/sessions/${id}`, { token: await alice() })).status;
    expect(await state(session_id)).toBe(200);
    expect(await state(workflow.sessions.other)).toBe(404);
  });

  test('is started once, however often its request is repeated', async () => {
    const body = { tasks: { a: shell('out once') } };
    ran.length = 0;
    const headers = { 'Idempotency-Key': 'start-1' };
    const [first, second] = await Promise.all([
      startWorkflow(body, { headers }),
      startWorkflow(body, { headers }),
    ]);
    expect(second.workflow_id).toBe(first.workflow_id);
    await endedWorkflow(first);
    expect(ran).toEqual(['out once']);
    const other = await api('POST', '/v1/workflows', {
      token: await alice(),
      headers,
      body: { tasks: { a: shell('out twice') } },
    });
    expect(problemIn(other).code).toBe('idempotency_conflict');
  });

  test('is cancelled with what it runs', async () => {
    ran.length = 0;
    const workflow = await startWorkflow({
      tasks: { a: shell('hold on'), b: shell('out b', { depends_on: ['a'] }) },
    });
    await eventually(() => expect(ran).toEqual(['hold on']));
    const cancel = async () =>
      api('POST', `/v1/workflows/${workflow.workflow_id}/cancel`, { token: await alice() });
    const answer = await cancel();
    expect(answer.status, answer.text).toBe(200);
    expect(WorkflowSchema.parse(answer.json)).toMatchObject({
      status: 'cancelled',
      tasks: { a: { status: 'cancelled' }, b: { status: 'cancelled' } },
    });
    expect((await cancel()).status).toBe(200);
    commands.release();
    const main = (await readWorkflow(workflow.workflow_id)).sessions.main;
    const session = await api('GET', `/v1/sessions/${main}`, { token: await alice() });
    expect(session.status).toBe(404);
    expect(ran).toEqual(['hold on']);
  });
});

describe('a task that fails', () => {
  const lookup = (more: object) => ({
    description: 'Looks something up',
    kind: 'http',
    url: 'https://lookups.example.com/find',
    ...more,
  });
  /** Registers the tool; what it answers in turn. How often it was asked is told. */
  async function answeringWith(sideEffects: string[], ...answers: number[]): Promise<() => number> {
    const body = lookup({ side_effects: sideEffects });
    const put = await api('PUT', '/v1/tools/lookup', { token: await alice(), body });
    expect(put.status, put.text).toBeLessThan(300);
    let asked = 0;
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => {
      const status = answers[asked] ?? 200;
      asked += 1;
      return Response.json({ asked }, { status });
    });
    return () => asked;
  }
  const task = (more: object = {}) => ({ tool_name: 'lookup', ...more });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test('is made again where its tool is idempotent, and succeeds at the second attempt', async () => {
    const asked = await answeringWith(['idempotent'], 503);
    const workflow = await run({
      tasks: {
        find: task({ retries: { max_attempts: 3 } }),
        after: shell({ $join: ['out ', { $from: 'find', path: '/structured/asked' }] }),
      },
    });
    expect(workflow).toMatchObject({
      status: 'succeeded',
      tasks: {
        find: {
          status: 'succeeded',
          calls: [
            { attempt: 1, status: 'failed' },
            { attempt: 2, status: 'succeeded' },
          ],
        },
      },
    });
    const [first, second] = workflow.tasks.find?.calls ?? [];
    expect(second?.execution_id).not.toBe(first?.execution_id);
    expect(asked()).toBe(2);
    expect(ran).toEqual(['out 2']);
  });

  test('is made as often as it may be, and fails as its last attempt did', async () => {
    const asked = await answeringWith(['read'], 503, 500, 200);
    const workflow = await run({ tasks: { find: task({ retries: { max_attempts: 2 } }) } });
    const { execution_id } = workflow.tasks.find?.calls[1] ?? {};
    expect(workflow).toMatchObject({ status: 'failed', tasks: { find: { status: 'failed' } } });
    expect(workflow.tasks.find?.calls.map(({ attempt, status }) => [attempt, status])).toEqual([
      [1, 'failed'],
      [2, 'failed'],
    ]);
    expect(workflow.reason).toContain(`find: ${execution_id} ended as failed`);
    expect(asked()).toBe(2);
  });

  test.each([
    ['does not ask for it', ['idempotent']],
    ['is not idempotent', ['write']],
  ])('is made once where it %s', async (_why, sideEffects) => {
    const asked = await answeringWith(sideEffects, 503);
    const workflow = await run({ tasks: { find: task() } });
    expect(workflow).toMatchObject({
      status: 'failed',
      tasks: { find: { status: 'failed', calls: [{ attempt: 1, status: 'failed' }] } },
    });
    expect(workflow.tasks.find?.calls).toHaveLength(1);
    expect(asked()).toBe(1);
  });

  test('cannot ask to be made again where its tool only writes', async () => {
    const asked = await answeringWith(['write'], 503);
    const body = { tasks: { find: task({ retries: { max_attempts: 2 } }) } };
    const answer = await api('POST', '/v1/workflows', { token: await alice(), body });
    expect(problemIn(answer).violations).toEqual([
      expect.objectContaining({ path: 'body.tasks.find.retries', received: 'lookup' }),
    ]);
    expect(asked()).toBe(0);
  });
});

describe('the time', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  test('of a task, once it is over, makes it fail, and what its call ended as is told', async () => {
    const workflow = await run({
      tasks: {
        slow: shell('slow', { timeout_ms: 250 }),
        after: shell({ $join: ['out ', { $from: 'slow', path: '/status' }] }, { run_on: 'failure' }),
      },
    });
    expect(workflow).toMatchObject({
      status: 'failed',
      tasks: { slow: { status: 'failed', calls: [{ status: 'timeout' }] }, after: { status: 'succeeded' } },
    });
    expect(workflow.reason).toMatch(/^slow: exe_\S+ ended as timeout/);
    expect(ran).toEqual(['slow', 'out timeout']);
  });

  test('of a workflow, once it is over, ends it as timeout: what has not begun does not begin', async () => {
    ran.length = 0;
    const started = await startWorkflow({
      timeout_s: WORKFLOW_TIMEOUT_S,
      tasks: { a: shell('hold on'), b: shell('out b', { depends_on: ['a'], run_on: 'always' }) },
    });
    await eventually(() => expect(ran).toEqual(['hold on']));
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + WORKFLOW_TIMEOUT_S * 1_000 });
    commands.release();
    expect(await endedWorkflow(started)).toMatchObject({
      status: 'timeout',
      reason: 'the time of the workflow is over',
      tasks: { a: { status: 'succeeded' }, b: { status: 'cancelled', calls: [] } },
    });
    expect(ran).toEqual(['hold on']);
  });

  test('of a workflow that cuts its last task ends it as timeout, that of the task does not', async () => {
    const cut = await run({
      timeout_s: WORKFLOW_TIMEOUT_S,
      tasks: { a: shell('slow', { timeout_ms: WORKFLOW_TIMEOUT_S * 1_000 }) },
    });
    expect(cut).toMatchObject({
      status: 'timeout',
      reason: 'the time of the workflow is over',
      tasks: { a: { status: 'failed', calls: [{ attempt: 1, status: 'timeout' }] } },
    });
    const own = await run({
      timeout_s: WORKFLOW_TIMEOUT_S,
      tasks: { a: shell('slow', { timeout_ms: 250 }) },
    });
    expect(own).toMatchObject({ status: 'failed', tasks: { a: { status: 'failed' } } });
    const may = await run({
      timeout_s: WORKFLOW_TIMEOUT_S,
      tasks: { all: shell('slow', { timeout_ms: WORKFLOW_TIMEOUT_S * 1_000, for_each: { $input: '' } }) },
      input: [1],
    });
    expect(may.status).toBe('timeout');
  });
});

describe('a workflow that cannot be', () => {
  const refused = async (body: unknown) => {
    const answer = await api('POST', '/v1/workflows', { token: await alice(), body });
    return problemIn(answer).violations ?? [];
  };

  test('is refused with the place and what was expected there', async () => {
    expect(
      await refused({
        tasks: { a: shell('x', { depends_on: ['b'] }), b: shell('y', { depends_on: ['a'] }) },
      }),
    ).toEqual([expect.objectContaining({ path: 'body.tasks', received: 'a → b → a' })]);
    expect(await refused({ tasks: { a: shell({ $from: 'z' }) } })).toEqual([
      expect.objectContaining({ path: 'body.tasks.a', received: 'z' }),
    ]);
    expect(await refused({ tasks: { a: shell({ $item: '' }) } })).toEqual([
      expect.objectContaining({ path: 'body.tasks.a' }),
    ]);
    expect(await refused({ tasks: { a: shell('x', { session: 'z' }) } })).toEqual([
      expect.objectContaining({ path: 'body.tasks.a.session', received: 'z' }),
    ]);
    expect(await refused({ tasks: { a: { tool_name: 'nothing' } } })).toEqual([
      expect.objectContaining({ path: 'body.tasks.a.tool_name', received: 'nothing' }),
    ]);
    expect(await refused({ tasks: { a: { tool_name: 'shell', arguments: { comand: 'x' } } } })).toEqual(
      expect.arrayContaining([expect.objectContaining({ path: 'body.tasks.a.arguments.command' })]),
    );
    expect(await refused({ tasks: { a: shell('x', { retries: { max_attempts: 2 } }) } })).toEqual([
      expect.objectContaining({ path: 'body.tasks.a.retries', received: 'shell' }),
    ]);
    expect(await refused({ tasks: {} })).toEqual([expect.objectContaining({ path: 'body.tasks' })]);
  });

  test('is missing for everybody but its owner', async () => {
    const { workflow_id } = await run({ tasks: { a: shell('out mine') } });
    const strangers = [
      await tokenOf({ claims: { tenant: 'acme', sub: 'bob' } }),
      await tokenOf({ claims: { tenant: 'globex', sub: 'alice' } }),
    ];
    for (const token of strangers) {
      const got = await api('GET', `/v1/workflows/${workflow_id}`, { token });
      const cancelled = await api('POST', `/v1/workflows/${workflow_id}/cancel`, { token });
      expect([problemIn(got).code, problemIn(cancelled).code]).toEqual(['not_found', 'not_found']);
    }
  });
});
