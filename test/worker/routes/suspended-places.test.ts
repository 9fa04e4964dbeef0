import { evictDurableObject, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { UsageReportSchema } from '../../../shared/tenant.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { nowS, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { OPERATOR_TOKEN } from '../issuer-bindings.ts';

let tenants = 0;
let tenant: string;
let token: string;
let running: ExecutionDouble[];
const hosts: HostDouble[] = [];

async function connect(): Promise<HostDouble> {
  const host = await connectFakeHost({
    script: async (execution) => {
      execution.started();
      if (execution.arguments.command === 'hold') running.push(execution);
      else await execution.finish();
    },
  });
  hosts.push(host);
  return host;
}

/** A tenant of its own for each test, with room for one session. */
beforeEach(async () => {
  running = [];
  tenants += 1;
  tenant = `placed-${tenants}`;
  await connect();
  token = await tokenOf({ claims: { tenant, sub: 'alice', exp: nowS() + 3_600 } });
  await limitTo(1);
});
afterEach(() => {
  vi.useRealTimers();
  for (const host of hosts.splice(0)) {
    expect(host.failures).toEqual([]);
    host.close();
  }
});

async function limitTo(sessions: number): Promise<void> {
  const body = { tenant: { concurrent_sessions: sessions } };
  const set = await api('PUT', `/v1/tenants/${tenant}/limits`, { token: OPERATOR_TOKEN, body });
  expect(set.status, set.text).toBe(200);
}

const create = () => api('POST', '/v1/sessions', { token, body: {} });
const act = (sessionId: string, action: string) =>
  api('POST', `/v1/sessions/${sessionId}/${action}`, { token, body: {} });

function run(sessionId: string, command: string, more: object = {}) {
  const body = { tool_name: 'shell', arguments: { command }, ...more };
  return api('POST', `/v1/sessions/${sessionId}/execute`, { token, body });
}

async function open(): Promise<string> {
  const answer = await create();
  expect(answer.status, answer.text).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

async function suspend(sessionId: string): Promise<void> {
  const answer = await act(sessionId, 'suspend');
  expect(answer.status, answer.text).toBe(200);
}

async function stateOf(sessionId: string): Promise<string> {
  return SessionSchema.parse((await api('GET', `/v1/sessions/${sessionId}`, { token })).json).state;
}

async function counted() {
  const { now } = UsageReportSchema.parse((await api('GET', '/v1/usage', { token })).json);
  return { holding: now.concurrent_sessions, suspended: now.suspended_sessions };
}

const stands = (expected: { holding: number; suspended: number }) =>
  eventually(async () => expect(await counted()).toEqual(expected));

test('a suspended session gives its place to another, and takes one again when it wakes', async () => {
  const first = await open();
  expect(problemIn(await create()).limit).toMatchObject({ name: 'concurrent_sessions', used: 1 });
  await suspend(first);
  await stands({ holding: 0, suspended: 1 });
  const second = await open();
  await stands({ holding: 1, suspended: 1 });
  await api('DELETE', `/v1/sessions/${second}`, { token });
  await stands({ holding: 0, suspended: 1 });
  expect((await run(first, 'again')).json).toMatchObject({ status: 'succeeded', state_lost: false });
  await stands({ holding: 1, suspended: 0 });
  expect(problemIn(await create()).code).toBe('quota_exceeded');
});

test('a session for which there is no place stays in its snapshot, whatever would wake it', async () => {
  const first = await open();
  await suspend(first);
  await stands({ holding: 0, suspended: 1 });
  const second = await open();
  for (const refused of [
    await run(first, 'again'),
    await run(first, 'again', { detach: true }),
    await act(first, 'resume'),
    await api('GET', `/v1/sessions/${first}/files/a`, { token }),
  ]) {
    expect(problemIn(refused)).toMatchObject({
      status: 429,
      code: 'quota_exceeded',
      limit: { name: 'concurrent_sessions', scope: 'tenant', limit: 1, used: 1 },
    });
  }
  expect(await stateOf(first)).toBe('suspended');
  await suspend(second);
  await stands({ holding: 0, suspended: 2 });
  expect((await run(first, 'again')).json).toMatchObject({ status: 'succeeded', state_lost: false });
});

test('of many that wake at once exactly as many do as there may be', async () => {
  await limitTo(6);
  const sessions = await Promise.all(Array.from({ length: 6 }, open));
  await Promise.all(sessions.map(suspend));
  await stands({ holding: 0, suspended: 6 });
  await limitTo(2);
  const woken = await Promise.all(sessions.map((sessionId) => run(sessionId, 'again')));
  expect(woken.filter(({ status }) => status === 200)).toHaveLength(2);
  for (const refused of woken.filter(({ status }) => status !== 200)) {
    expect(problemIn(refused)).toMatchObject({ code: 'quota_exceeded', limit: { used: 2 } });
  }
  await stands({ holding: 2, suspended: 4 });
});

test('a place that was taken for a host which did not come is given back', async () => {
  const first = await open();
  await suspend(first);
  for (const host of hosts) host.refuseAttach = 'host_full';
  expect(problemIn(await run(first, 'again')).code).toBe('host_full');
  await stands({ holding: 0, suspended: 1 });
  for (const host of hosts) host.refuseAttach = undefined;
  await open();
});

test('a session that moves with a running call keeps its place on the way', async () => {
  const first = await open();
  const begun = ExecutionSchema.parse((await run(first, 'hold', { detach: true })).json);
  await eventually(() => expect(running).toHaveLength(1));
  const other = await connect();
  const [moved, ...creates] = await Promise.all([act(first, 'migrate'), create(), create(), create()]);
  expect(moved).toMatchObject({ status: 200, json: { state: 'running', host_id: other.hostId } });
  expect(creates.map((answer) => problemIn(answer).code)).toEqual(Array(3).fill('quota_exceeded'));
  await running[0]?.finish();
  const path = `/v1/sessions/${first}/executions/${begun.execution_id}`;
  await eventually(async () =>
    expect((await api('GET', path, { token })).json).toMatchObject({ status: 'succeeded' }),
  );
  await stands({ holding: 1, suspended: 0 });
});

test('a call in the middle of its work waits for a place, and goes on when there is one', async () => {
  const first = await open();
  await run(first, 'hold', { detach: true });
  await eventually(() => expect(running).toHaveLength(1));
  await suspend(first);
  await stands({ holding: 0, suspended: 1 });
  const second = await open();
  const object = env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, first)));
  await evictDurableObject(object);
  expect(problemIn(await act(first, 'resume')).code).toBe('quota_exceeded');
  await api('DELETE', `/v1/sessions/${second}`, { token });
  // The next try is the alarm's.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 20_000 });
  await runDurableObjectAlarm(object);
  vi.useRealTimers();
  await eventually(async () => expect(await stateOf(first)).toBe('running'));
  expect(running).toHaveLength(1);
});

test('the end of a suspended session leaves nothing counted', async () => {
  const first = await open();
  await suspend(first);
  await stands({ holding: 0, suspended: 1 });
  expect((await api('DELETE', `/v1/sessions/${first}`, { token })).status).toBe(204);
  await stands({ holding: 0, suspended: 0 });
});
