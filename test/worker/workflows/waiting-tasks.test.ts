/** Tasks of workflows that wait: programs for their callers, tools for an approval. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { type Workflow, WorkflowSchema } from '../../../shared/workflow.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let tenants = 0;
let tenant: string;
let requests: string[];
/** What programs were begun with. */
let given: unknown[];

const script: Script = async (execution) => {
  execution.started();
  const text = String(execution.arguments.command ?? execution.arguments.code);
  const [verb, ...rest] = text.split(' ');
  if (verb === 'out') await execution.write('stdout', `${rest.join(' ')}\n`);
  if (verb === 'ask') {
    given.push(execution.arguments.program);
    execution.call(1, 'people.ask', { question: rest.join(' ') });
    execution.waits();
    const answer = await execution.answer(1);
    execution.goesOn();
    execution.part('value', JSON.stringify(answer));
  }
  if (verb === 'boom') return execution.finish({ status: 'failed', exit_code: 1 });
  return execution.finish();
};

const as = async (sub: string, method: string, path: string, body?: object) =>
  api(method, path, {
    token: await tokenOf({ claims: { tenant, sub } }),
    ...(body === undefined ? {} : { body }),
  });

beforeEach(async () => {
  tenants += 1;
  tenant = `waiting-tasks-${tenants}`;
  given = [];
  requests = [];
  host = await connectFakeHost({ script });
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    requests.push(await new Request(input, init).text());
    return Response.json({ booked: true });
  });
  const tools = [
    { name: 'people.ask', description: 'Asks a person', kind: 'client' },
    {
      name: 'book',
      description: 'Books a room',
      kind: 'http',
      method: 'POST',
      url: 'https://rooms.example.com/book',
      approval: 'required',
    },
    {
      name: 'sum',
      description: 'Adds',
      kind: 'code',
      language: 'python',
      code: 'def main(): return 1',
      approval: 'required',
    },
  ];
  for (const tool of tools)
    expect((await as('alice', 'PUT', `/v1/tools/${tool.name}`, tool)).status).toBeLessThan(300);
});
afterEach(() => {
  vi.restoreAllMocks();
  host.close();
});

async function start(body: object): Promise<Workflow> {
  const answer = await as('alice', 'POST', '/v1/workflows', body);
  expect(answer.status, answer.text).toBe(202);
  return WorkflowSchema.parse(answer.json);
}

async function read({ workflow_id }: Workflow): Promise<Workflow> {
  return WorkflowSchema.parse((await as('alice', 'GET', `/v1/workflows/${workflow_id}`)).json);
}

function ended(workflow: Workflow): Promise<Workflow> {
  return eventually(async () => {
    const now = await read(workflow);
    expect(now.status).not.toBe('running');
    return now;
  });
}

/** The one call of a task, once it has begun. */
function begun(workflow: Workflow, task: string) {
  return eventually(async () => {
    const [call] = (await read(workflow)).tasks[task]?.calls ?? [];
    if (call === undefined) throw new Error(`${task} has not begun`);
    return call;
  });
}

const program = (code: string, more: object = {}) => ({ language: 'python', code, ...more });

describe('a program as a task', () => {
  test('finds what other tasks gave, waits for its caller, and hands on its own', async () => {
    const workflow = await start({
      tasks: {
        list: { tool_name: 'shell', arguments: { command: 'out [1, 2]' } },
        ask: {
          program: program('ask which?', { tools: ['people.ask'] }),
          arguments: { numbers: { $from: 'list', path: '/json' }, of: { $input: '/who' } },
        },
        after: {
          tool_name: 'shell',
          arguments: { command: { $join: ['out ', { $from: 'ask', path: '/value' }] } },
        },
      },
      input: { who: 'me' },
    });
    expect(workflow.tasks.ask).toMatchObject({ kind: 'program', tool_name: 'python' });
    const call = await begun(workflow, 'ask');
    const path = `/v1/sessions/${call.session_id}/programs/${call.execution_id}`;
    const { pending } = await eventually(async () => {
      const found = ProgramSchema.parse((await as('alice', 'GET', path)).json);
      expect(found.pending).toHaveLength(1);
      return found;
    });
    expect(given).toMatchObject([
      { tools: [{ name: 'people.ask' }], arguments: { numbers: [1, 2], of: 'me' } },
    ]);
    const results = [{ id: pending[0]?.id, content: 'two' }];
    expect((await as('alice', 'POST', `${path}/tool_results`, { results, detach: true })).status).toBe(202);
    const end = await ended(workflow);
    expect(end).toMatchObject({
      status: 'succeeded',
      tasks: { ask: { status: 'succeeded', calls: [{ status: 'succeeded' }] } },
    });
  });

  test('that fails makes its task fail', async () => {
    const end = await ended(await start({ tasks: { a: { program: program('boom') } } }));
    expect(end).toMatchObject({ status: 'failed', tasks: { a: { status: 'failed' } } });
    expect(end.tasks.a?.reason).toContain('ended as failed');
  });

  test('is stopped with its workflow', async () => {
    const workflow = await start({ tasks: { ask: { program: program('ask which?') } } });
    await begun(workflow, 'ask');
    const cancelled = await as('alice', 'POST', `/v1/workflows/${workflow.workflow_id}/cancel`);
    expect(cancelled.json).toMatchObject({ status: 'cancelled', tasks: { ask: { status: 'cancelled' } } });
  });

  test.each<[object, string]>([
    [{ program: program('x'), tool_name: 'shell' }, 'body.tasks.a.tool_name'],
    [{}, 'body.tasks.a.tool_name'],
    [{ program: program('x', { tools: ['nothing'] }) }, 'body.tasks.a.program.tools.0.tool_name'],
    [{ program: program('x', { tools: ['shell'] }) }, 'body.tasks.a.program.tools.0'],
    [{ program: program('x'), retries: { max_attempts: 2 } }, 'body.tasks.a.retries'],
    [{ program: program('x'), timeout_ms: 1_000 }, 'body.tasks.a.timeout_ms'],
    [{ program: { language: 'ruby', code: 'x' } }, 'body.tasks.a.program.language'],
  ])('like %j is refused at its place', async (task, path) => {
    const answer = await as('alice', 'POST', '/v1/workflows', { tasks: { a: task } });
    expect(problemIn(answer).violations?.map((violation) => violation.path)).toEqual([path]);
  });
});

describe('a task whose tool needs an approval', () => {
  const decide = (executionId: string, body: object) =>
    as('bob', 'POST', `/v1/executions/${executionId}/approval`, body);

  test.each([
    ['book', { booked: true }],
    ['sum', null],
  ])('waits for it, and calls %s when it is given', async (tool_name, structured) => {
    const workflow = await start({ tasks: { a: { tool_name, arguments: {} } } });
    const call = await begun(workflow, 'a');
    expect(call.status).toBe('waiting');
    expect(requests).toEqual([]);
    expect((await decide(call.execution_id, { decision: 'approve' })).status).toBe(200);
    const end = await ended(workflow);
    expect(end.status).toBe('succeeded');
    expect(end.tasks.a?.calls).toMatchObject([{ execution_id: call.execution_id, status: 'succeeded' }]);
    expect(requests).toHaveLength(structured === null ? 0 : 1);
  });

  test('fails where it is denied, with the reason', async () => {
    const workflow = await start({ tasks: { a: { tool_name: 'book' } } });
    await decide((await begun(workflow, 'a')).execution_id, { decision: 'deny', reason: 'no rooms today' });
    const end = await ended(workflow);
    expect(end).toMatchObject({ status: 'failed', tasks: { a: { status: 'failed' } } });
    expect(end.tasks.a?.reason).toContain('no rooms today');
    expect(requests).toEqual([]);
  });

  test('asks for no more when its workflow is cancelled', async () => {
    const workflow = await start({ tasks: { a: { tool_name: 'book' } } });
    const { execution_id } = await begun(workflow, 'a');
    await as('alice', 'POST', `/v1/workflows/${workflow.workflow_id}/cancel`);
    expect(problemIn(await decide(execution_id, { decision: 'approve' })).code).toBe('approval_decided');
    expect(requests).toEqual([]);
  });
});
