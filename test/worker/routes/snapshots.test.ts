import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ForkedSchema, type Snapshot, SnapshotSchema } from '../../../shared/snapshot-resource.ts';
import { MAX_SNAPSHOTS } from '../../../worker/objects/snapshots/object.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { caller, createOn, newId, sessionStub } from '../harness/sessions.ts';

let host: HostDouble;
const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
const bob = () => tokenOf({ claims: { tenant: 'acme', sub: 'bob' } });
const mallory = () => tokenOf({ claims: { tenant: 'globex', sub: 'alice' } });

beforeAll(async () => {
  host = await connectFakeHost();
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

async function open(body: object = {}, token?: string): Promise<string> {
  const answer = await api('POST', '/v1/sessions', { token: token ?? (await alice()), body });
  expect(answer.status, answer.text).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

async function keep(sessionId: string, name: string): Promise<Snapshot> {
  const body = { name };
  const answer = await api('POST', `/v1/sessions/${sessionId}/snapshots`, { token: await alice(), body });
  expect(answer.status, answer.text).toBe(201);
  return SnapshotSchema.parse(answer.json);
}

async function as(token: Promise<string>, method: string, path: string, options: ApiOptions = {}) {
  return api(method, path, { token: await token, ...options });
}

describe('a named snapshot', () => {
  test('is made while the session goes on, shown, listed and removed with its bytes', async () => {
    const sessionId = await open({ metadata: { of: 'parent' } });
    const first = await keep(sessionId, 'first');
    const second = await keep(sessionId, 'second');
    expect(first).toMatchObject({ session_id: sessionId, name: 'first', parent_snapshot_id: null });
    expect((await as(alice(), 'GET', `/v1/sessions/${sessionId}`)).json).toMatchObject({ state: 'running' });
    expect((await as(alice(), 'GET', `/v1/snapshots/${first.snapshot_id}`)).json).toMatchObject({
      name: 'first',
      stored_bytes: first.stored_bytes,
    });
    const page = await as(alice(), 'GET', '/v1/snapshots?limit=1');
    expect(page.json).toMatchObject({ snapshots: [{ snapshot_id: second.snapshot_id }] });
    const { next_cursor: cursor } = page.json as { next_cursor: string };
    const rest = await as(alice(), 'GET', `/v1/snapshots?cursor=${encodeURIComponent(cursor)}`);
    expect(rest.json).toMatchObject({ snapshots: [{ snapshot_id: first.snapshot_id }], next_cursor: null });
    for (const { snapshot_id: id } of [first, second]) {
      expect((await as(alice(), 'DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
      expect((await as(alice(), 'DELETE', `/v1/snapshots/${id}`)).status).toBe(404);
      await eventually(async () => {
        await runDurableObjectAlarm(env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName('acme')));
        expect((await env.SNAPSHOTS.list({ prefix: `acme/${id}/` })).objects).toEqual([]);
      });
    }
    await as(alice(), 'DELETE', `/v1/sessions/${sessionId}`);
  });

  test('is refused where the state was lost, until a call has begun anew', async () => {
    const sessionId = await open();
    const remove = async ({ snapshot_id: id }: Snapshot) =>
      expect((await as(alice(), 'DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
    host.session(sessionId).send({ type: 'sandbox_lost', reason: 'crashed' });
    await eventually(async () => {
      const body = { name: 'after' };
      const refused = await as(alice(), 'POST', `/v1/sessions/${sessionId}/snapshots`, { body });
      // The loss may be on its way still.
      if (refused.status === 201) await remove(SnapshotSchema.parse(refused.json));
      expect(problemIn(refused)).toMatchObject({
        status: 409,
        code: 'session_not_running',
        detail: expect.stringContaining('the sandbox was lost'),
      });
    });
    const call = { tool_name: 'shell', arguments: { command: 'true' } };
    const called = await as(alice(), 'POST', `/v1/sessions/${sessionId}/execute`, { body: call });
    expect(called.json).toMatchObject({ state_lost: true });
    await remove(await keep(sessionId, 'after'));
    await as(alice(), 'DELETE', `/v1/sessions/${sessionId}`);
  });

  test('of somebody else is a missing one, of whichever tenant', async () => {
    const sessionId = await open();
    const { snapshot_id: id } = await keep(sessionId, 'mine');
    for (const other of [bob(), mallory()]) {
      for (const method of ['GET', 'DELETE']) {
        expect((await as(other, method, `/v1/snapshots/${id}`)).status).toBe(404);
      }
      const made = await as(other, 'POST', '/v1/sessions', { body: { from_snapshot: id } });
      expect([made.status, problemIn(made).code]).toEqual([404, 'not_found']);
      expect((await as(other, 'GET', '/v1/snapshots')).json).toMatchObject({ snapshots: [] });
    }
    expect((await as(alice(), 'DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
    await as(alice(), 'DELETE', `/v1/sessions/${sessionId}`);
  });

  test('is what a session begins with: its image, sizes, variables and way out, and none of its calls', async () => {
    const network = { allow: ['example.com'], inject: [] };
    const limits = { class: 'small' };
    const parent = await open({ env: { A: '1' }, network, limits });
    const { snapshot_id: id } = await keep(parent, 'base');
    const made = await as(alice(), 'POST', '/v1/sessions', {
      body: { from_snapshot: id, metadata: { m: 'x' } },
    });
    expect(made.status, made.text).toBe(201);
    const child = SessionSchema.parse(made.json);
    expect(child).toMatchObject({
      from_snapshot: id,
      parent_session_id: parent,
      generation: 1,
      environment: { A: '1' },
      network: { allow: ['example.com'] },
      resource_limits: { memory_bytes: 256 * 1024 * 1024 },
      metadata: { m: 'x' },
    });
    const { attach } = host.session(child.session_id);
    expect(attach.snapshot).toMatchObject({ snapshot_id: id, executions: 'stop', generation: 1 });
    const grandchild = await keep(child.session_id, 'later');
    expect(grandchild).toMatchObject({ parent_snapshot_id: id, generation: 1 });
    const refused = await as(alice(), 'POST', '/v1/sessions', {
      body: { from_snapshot: id, env: { B: '2' }, limits: { cpus: 2 } },
    });
    expect(problemIn(refused).violations?.map(({ path }) => path)).toEqual(['body.env', 'body.limits']);
    for (const sessionId of [parent, child.session_id])
      await as(alice(), 'DELETE', `/v1/sessions/${sessionId}`);
    for (const snapshotId of [id, grandchild.snapshot_id]) {
      await as(alice(), 'DELETE', `/v1/snapshots/${snapshotId}`);
    }
  });

  test('counts against a limit of its tenant', async () => {
    const sessionId = await open({}, await mallory());
    const index = env.SNAPSHOT_INDEX.getByName('globex');
    for (let n = 0; n < MAX_SNAPSHOTS; n += 1) {
      const snapshotId = `snp_${String(n).padStart(22, '0')}`;
      const row = {
        snapshotId,
        sessionId,
        tenant: 'globex',
        subject: 'alice',
        kind: 'named',
        name: 'x',
      } as const;
      expect(await index.begin(row)).toMatchObject({ ok: true });
    }
    const body = { name: 'one too many' };
    const refused = await as(mallory(), 'POST', `/v1/sessions/${sessionId}/snapshots`, { body });
    expect(problemIn(refused).code).toBe('quota_exceeded');
    const suspended = await as(mallory(), 'POST', `/v1/sessions/${sessionId}/suspend`);
    expect(problemIn(suspended).code).toBe('quota_exceeded');
    expect((await as(mallory(), 'GET', `/v1/sessions/${sessionId}`)).json).toMatchObject({
      state: 'running',
    });
    await as(mallory(), 'DELETE', `/v1/sessions/${sessionId}`);
  });
});

describe('a rollback', () => {
  test('takes the session back to its snapshot, with what runs interrupted and what waits run there', async () => {
    const sessionId = await open();
    const path = `/v1/sessions/${sessionId}`;
    const { snapshot_id: id } = await keep(sessionId, 'before');
    const held = host.script;
    host.script = (execution) => execution.started();
    const call = { tool_name: 'shell', arguments: { command: 'x' } };
    const running = await as(alice(), 'POST', `${path}/execute`, { body: { ...call, detach: true } });
    const { execution_id: executionId } = ExecutionSchema.parse(running.json);
    await host.until(() => host.session(sessionId).executions.size === 1);
    const waiting = as(alice(), 'POST', `${path}/execute`, { body: call });
    await eventually(async () =>
      expect((await as(alice(), 'GET', path)).json).toMatchObject({ executions: { queued: 1 } }),
    );
    host.script = held;
    const former = host.session(sessionId);
    const back = await as(alice(), 'POST', `${path}/rollback`, { body: { snapshot_id: id } });
    expect(back).toMatchObject({ status: 200, json: { state: 'running', generation: 1 } });
    expect(await waiting).toMatchObject({ json: { status: 'succeeded', state_lost: false } });
    const ended = await as(alice(), 'GET', `${path}/executions/${executionId}`);
    expect(ended.json).toMatchObject({ status: 'interrupted', reason: 'rolled_back' });
    expect(host.session(sessionId).epoch).toBeGreaterThan(former.epoch);
    expect(host.session(sessionId).attach.snapshot).toMatchObject({ snapshot_id: id, executions: 'stop' });
    // It can be gone back to as often as it is wanted, each time with another generation.
    const again = await as(alice(), 'POST', `${path}/rollback`, { body: { snapshot_id: id } });
    expect(again.json).toMatchObject({ state: 'running', generation: 2 });
    await as(alice(), 'DELETE', path);
    await as(alice(), 'DELETE', `/v1/snapshots/${id}`);
  });

  test('keeps its snapshot as long as the session is in it', async () => {
    const sessionId = await open();
    const path = `/v1/sessions/${sessionId}`;
    const { snapshot_id: id } = await keep(sessionId, 'held');
    host.refuseAttach = 'host_full';
    expect((await as(alice(), 'POST', `${path}/rollback`, { body: { snapshot_id: id } })).status).not.toBe(
      200,
    );
    host.refuseAttach = undefined;
    const refused = await as(alice(), 'DELETE', `/v1/snapshots/${id}`);
    expect(problemIn(refused).code).toBe('session_not_running');
    expect((await as(alice(), 'POST', `${path}/resume`)).json).toMatchObject({ state: 'running' });
    expect((await as(alice(), 'DELETE', `/v1/snapshots/${id}`)).status).toBe(204);
    await as(alice(), 'DELETE', path);
  });

  test('is to a snapshot of this session only', async () => {
    const [one, other] = [await open(), await open()];
    const { snapshot_id: id } = await keep(one, 'mine');
    for (const snapshotId of [id, `snp_${'a'.repeat(22)}`]) {
      const body = { snapshot_id: snapshotId };
      const refused = await as(alice(), 'POST', `/v1/sessions/${other}/rollback`, { body });
      expect(problemIn(refused).code).toBe('not_found');
    }
    expect((await as(alice(), 'GET', `/v1/sessions/${other}`)).json).toMatchObject({ state: 'running' });
    for (const sessionId of [one, other]) await as(alice(), 'DELETE', `/v1/sessions/${sessionId}`);
    await as(alice(), 'DELETE', `/v1/snapshots/${id}`);
  });
});

describe('a fork', () => {
  test('is as many sessions as were asked for, each of its own, and the parent goes on', async () => {
    const parent = await open({ metadata: { of: 'parent' }, suspend_after_idle_s: 60 });
    const answer = await as(alice(), 'POST', `/v1/sessions/${parent}/fork`, { body: { count: 3 } });
    expect(answer.status, answer.text).toBe(201);
    const { sessions } = ForkedSchema.parse(answer.json);
    expect(new Set(sessions.map(({ session_id }) => session_id)).size).toBe(3);
    for (const child of sessions) {
      expect(child).toMatchObject({
        state: 'running',
        parent_session_id: parent,
        metadata: { of: 'parent' },
        suspend_after_idle_s: 60,
        generation: 1,
      });
    }
    // It is nobody's snapshot: what was stored for it goes.
    expect((await as(alice(), 'GET', '/v1/snapshots')).json).toMatchObject({ snapshots: [] });
    await eventually(async () => {
      await runDurableObjectAlarm(env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName('acme')));
      const id = sessions[0]?.from_snapshot ?? '';
      expect((await env.SNAPSHOTS.list({ prefix: `acme/${id}/` })).objects).toEqual([]);
    });
    for (const id of [parent, ...sessions.map(({ session_id }) => session_id)]) {
      await as(alice(), 'DELETE', `/v1/sessions/${id}`);
    }
  });

  test('whose end nobody saw to leaves none behind, and one that ended well stays', async () => {
    const parent = await open();
    const whole = await as(alice(), 'POST', `/v1/sessions/${parent}/fork`, { body: { count: 1 } });
    const [kept = ''] = ForkedSchema.parse(whole.json).sessions.map(({ session_id }) => session_id);
    // As where the Worker dies when one of two is there.
    const made = await sessionStub(parent).fork(caller);
    if (!made.ok) throw new Error(made.detail);
    const { snapshotId } = made.value.snapshot;
    const index = env.SNAPSHOT_INDEX.getByName('acme');
    const children = [await newId(), await newId()];
    expect(await index.beginFork({ snapshotId, children })).toMatchObject({ ok: true });
    const [born = ''] = children;
    expect(await createOn(host, born)).toMatchObject({ ok: true });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 725_000 });
    // Its sessions are about to end, or end at this moment.
    expect(await index.endFork({ snapshotId, isWhole: true })).toMatchObject({ ok: false });
    await runDurableObjectAlarm(env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName('acme')));
    vi.useRealTimers();
    expect((await as(alice(), 'GET', `/v1/sessions/${born}`)).status).toBe(404);
    expect(host.sessions.has(born)).toBe(false);
    // Whoever comes back to it does not take it for whole.
    expect(await index.endFork({ snapshotId, isWhole: true })).toMatchObject({ ok: false });
    expect((await as(alice(), 'GET', `/v1/sessions/${kept}`)).json).toMatchObject({ state: 'running' });
    for (const id of [parent, kept]) await as(alice(), 'DELETE', `/v1/sessions/${id}`);
  });

  test('that failed ends what did not answer in time, too', async () => {
    const parent = await open();
    const made = await sessionStub(parent).fork(caller);
    if (!made.ok) throw new Error(made.detail);
    const { snapshotId } = made.value.snapshot;
    const index = env.SNAPSHOT_INDEX.getByName('acme');
    const late = await newId();
    await index.beginFork({ snapshotId, children: [late] });
    await index.endFork({ snapshotId, isWhole: false });
    await createOn(host, late);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 65_000 });
    await runDurableObjectAlarm(env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName('acme')));
    vi.useRealTimers();
    expect((await as(alice(), 'GET', `/v1/sessions/${late}`)).status).toBe(404);
    await as(alice(), 'DELETE', `/v1/sessions/${parent}`);
  });

  test('that does not come to its whole number leaves none behind', async () => {
    const parent = await open();
    const before = host.sessions.size;
    host.refuseAttach = 'restore_failed';
    const answer = await as(alice(), 'POST', `/v1/sessions/${parent}/fork`, { body: { count: 2 } });
    host.refuseAttach = undefined;
    expect([503, 409]).toContain(answer.status);
    expect(host.sessions.size).toBe(before);
    expect((await as(alice(), 'GET', `/v1/sessions/${parent}`)).json).toMatchObject({ state: 'running' });
    await as(alice(), 'DELETE', `/v1/sessions/${parent}`);
  });
});
