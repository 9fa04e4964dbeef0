/** Snapshots and forks that are asked for again with their key. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { SessionSchema } from '../../../shared/session.ts';
import { ForkedSchema, SnapshotListSchema, SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';

let host: HostDouble;
let parent: string;

const as = async (
  method: string,
  path: string,
  more: { body?: object; headers?: Record<string, string> } = {},
) => api(method, path, { token: await tokenOf({ claims: { tenant: 'keyed', sub: 'alice' } }), ...more });

beforeAll(async () => {
  host = await connectFakeHost();
  parent = SessionSchema.parse((await as('POST', '/v1/sessions', { body: {} })).json).session_id;
});
afterEach(() => {
  vi.useRealTimers();
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

const ask = (what: 'snapshots' | 'fork', key: string, body: object): Promise<ApiAnswer> =>
  as('POST', `/v1/sessions/${parent}/${what}`, { body, headers: { 'Idempotency-Key': key } });

describe('a named snapshot', () => {
  const names = async () =>
    SnapshotListSchema.parse((await as('GET', '/v1/snapshots')).json).snapshots.map(({ name }) => name);

  test('is made once for its key, and not anew where it was removed', async () => {
    const first = await ask('snapshots', 's1', { name: 'once' });
    const second = await ask('snapshots', 's1', { name: 'once' });
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.json).toEqual(first.json);
    expect(second.headers.get('Location')).toBe(first.headers.get('Location'));
    expect(problemIn(await ask('snapshots', 's1', { name: 'other' })).code).toBe('idempotency_conflict');
    expect(await names()).toEqual(['once']);
    const { snapshot_id: id } = SnapshotSchema.parse(first.json);
    expect((await as('DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
    expect(problemIn(await ask('snapshots', 's1', { name: 'once' }))).toMatchObject({
      code: 'not_found',
      detail: expect.stringContaining('removed'),
    });
    expect(await names()).toEqual([]);
  });

  test('is made once where both ask at a time', async () => {
    const answers = await Promise.all([1, 2, 3].map(() => ask('snapshots', 's2', { name: 'both' })));
    for (const answer of answers) {
      if (answer.status !== 201) expect(problemIn(answer).code).toBe('idempotency_in_progress');
    }
    expect(answers.some(({ status }) => status === 201)).toBe(true);
    expect(await names()).toEqual(['both']);
  });
});

describe('a fork', () => {
  const idsIn = (answer: ApiAnswer) =>
    ForkedSchema.parse(answer.json).sessions.map(({ session_id }) => session_id);

  test('is made once for its key', async () => {
    const first = await ask('fork', 'f1', { count: 2 });
    expect(first.status, first.text).toBe(201);
    const before = host.sessions.size;
    const second = await ask('fork', 'f1', { count: 2 });
    expect(idsIn(second)).toEqual(idsIn(first));
    expect(host.sessions.size).toBe(before);
    expect(problemIn(await ask('fork', 'f1', { count: 3 })).code).toBe('idempotency_conflict');
    const [one = ''] = idsIn(first);
    expect((await as('DELETE', `/v1/sessions/${one}`)).status).toBe(204);
    expect(problemIn(await ask('fork', 'f1', { count: 2 })).code).toBe('not_found');
    expect(host.sessions.size).toBe(before - 1);
  });

  test('that came to nothing is made by the same key', async () => {
    host.refuseAttach = 'restore_failed';
    const failed = await ask('fork', 'f2', { count: 1 });
    host.refuseAttach = undefined;
    expect(failed.status).toBeGreaterThanOrEqual(400);
    const made = await ask('fork', 'f2', { count: 1 });
    expect(made.status, made.text).toBe(201);
    expect(idsIn(await ask('fork', 'f2', { count: 1 }))).toEqual(idsIn(made));
  });
});
