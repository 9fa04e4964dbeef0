/** The list of a caller's workflows. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type WorkflowEntry, WorkflowListSchema, WorkflowSchema } from '../../../shared/workflow.ts';
import { echo, type HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;

const tokenFor = (sub: string, tenant = 'workflow-list') => tokenOf({ claims: { tenant, sub } });

beforeAll(async () => {
  host = await connectFakeHost({ script: echo });
});
afterAll(() => host.close());

async function start(name: string, labels: object, command = 'x'): Promise<string> {
  const body = { name, labels, tasks: { a: { tool_name: 'shell', arguments: { command } } } };
  const answer = await api('POST', '/v1/workflows', { token: await tokenFor('alice'), body });
  expect(answer.status, answer.text).toBe(202);
  return WorkflowSchema.parse(answer.json).workflow_id;
}

async function list(
  query = '',
  token?: string,
): Promise<{ workflows: WorkflowEntry[]; next: string | null }> {
  const answer = await api('GET', `/v1/workflows${query}`, { token: token ?? (await tokenFor('alice')) });
  expect(answer.status, answer.text).toBe(200);
  const { workflows, next_cursor: next } = WorkflowListSchema.parse(answer.json);
  return { workflows, next };
}

const names = async (query: string) => (await list(query)).workflows.map(({ name }) => name);

test('has them newest first, by status and labels, in pages, and never those of others', async () => {
  const ids = [
    await start('one', { team: 'red', 'a.b/c': 'x' }),
    await start('two', { team: 'blue' }),
    await start('three', { team: 'red', env: 'test' }),
  ];
  // A workflow is in the list as soon as it is started.
  expect((await list()).workflows.map(({ workflow_id }) => workflow_id)).toEqual(ids.toReversed());
  await eventually(async () => expect(await names('?status=succeeded')).toHaveLength(3));
  const [newest] = (await list()).workflows;
  expect(newest).toMatchObject({ name: 'three', labels: { team: 'red', env: 'test' }, status: 'succeeded' });
  expect(newest?.finished_at).not.toBeNull();
  expect(await names('?status=running')).toEqual([]);
  expect(await names('?label=team=red')).toEqual(['three', 'one']);
  expect(await names('?label=team=red,env')).toEqual(['three']);
  expect(await names(`?label=${encodeURIComponent('a.b/c=x')}`)).toEqual(['one']);
  const first = await list('?limit=2');
  expect(first.workflows.map(({ name }) => name)).toEqual(['three', 'two']);
  const second = await list(`?limit=2&cursor=${first.next}`);
  expect([second.workflows.map(({ name }) => name), second.next]).toEqual([['one'], null]);
  expect((await list('', await tokenFor('bob'))).workflows).toEqual([]);
  expect((await list('', await tokenFor('alice', 'other-list'))).workflows).toEqual([]);
});

test.each([
  ['?cursor=x', 'query.cursor'],
  ['?label=,', 'query.label'],
  ['?status=gone', 'query.status'],
])('is refused for %s', async (query, path) => {
  const answer = await api('GET', `/v1/workflows${query}`, { token: await tokenFor('alice') });
  expect([answer.status, problemIn(answer).violations?.[0]?.path]).toEqual([400, path]);
});
