/** A host that is drained becomes empty: its sessions go elsewhere, with what runs in them. */
import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { OperatorHostSchema } from '../../../../shared/host-api.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import { type HostDouble, startAmong } from '../../../fixtures/host-double/host-double.ts';

import { api } from '../../harness/api.ts';
import { eventually } from '../../harness/eventually.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, type TestSession } from '../../harness/sessions.ts';
import { OPERATOR_TOKEN } from '../../issuer-bindings.ts';

let host: HostDouble;
let running: ExecutionDouble[];
const hosts: HostDouble[] = [];
const sessions: TestSession[] = [];

async function connect(): Promise<HostDouble> {
  const connected = await connectFakeHost({
    script: startAmong(running),
  });
  hosts.push(connected);
  return connected;
}

async function open(): Promise<TestSession> {
  const opened = await openSession(host);
  sessions.push(opened);
  return opened;
}

beforeEach(async () => {
  running = [];
  host = await connect();
});
afterEach(async () => {
  await Promise.all(sessions.splice(0).map(({ stub }) => stub.destroy(caller)));
  for (const connected of hosts.splice(0)) connected.close();
});

async function drain(): Promise<void> {
  const answer = await api('POST', `/v1/hosts/${host.hostId}/drain`, { token: OPERATOR_TOKEN });
  expect(answer.status, answer.text).toBe(200);
}

async function view({ stub }: TestSession) {
  const described = await stub.describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
}

/** As an agent says it whose machine is drained by `sandgate-host drain`. */
function say(draining: boolean): void {
  host.sendControl({
    type: 'load',
    sandboxes: host.sessions.size,
    capacity: { sandboxes: draining ? host.sessions.size : host.capacity },
    degraded: false,
    ...(draining ? { draining } : {}),
  });
}

async function faults(): Promise<string[]> {
  const path = `/v1/hosts/${host.hostId}`;
  const { json } = await api('GET', path, { token: OPERATOR_TOKEN });
  return OperatorHostSchema.parse(json).faults;
}

describe('draining a host', () => {
  test('from its machine moves its sessions as an operator of the edge does, until it takes some again', async () => {
    const [idle, busy] = [await open(), await open()];
    const waiting = busy.stub.execute(call('x'));
    await host.until(() => running.length === 1);
    const other = await connect();
    say(true);
    for (const session of [idle, busy]) {
      await eventually(async () =>
        expect(await view(session)).toMatchObject({ state: 'running', host_id: other.hostId }),
      );
    }
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded', state_lost: false } });
    expect(await faults()).toEqual(['draining']);
    say(false);
    await eventually(async () => expect(await faults()).toEqual([]));
  });

  test('from its machine ends there, and goes on where the operator of the edge wants it too', async () => {
    const saidByHost = () =>
      runInDurableObject(env.HOST.get(env.HOST.idFromName(host.hostId)), (_object, { storage }) =>
        storage.sql.exec('SELECT draining FROM own_wish').toArray(),
      );
    say(true);
    await eventually(async () => expect(await faults()).toEqual(['draining']));
    await drain();
    say(false);
    await eventually(async () => expect(await saidByHost()).toEqual([{ draining: 0 }]));
    expect(await faults()).toContain('draining');
    const answer = await api('POST', `/v1/hosts/${host.hostId}/uncordon`, { token: OPERATOR_TOKEN });
    expect(answer.status, answer.text).toBe(200);
    expect(await faults()).toEqual([]);
  });

  test('moves its sessions to another one, also in the middle of a call', async () => {
    const [idle, busy] = [await open(), await open()];
    const waiting = busy.stub.execute(call('x'));
    await host.until(() => running.length === 1);
    const other = await connect();
    await drain();
    for (const session of [idle, busy]) {
      await eventually(async () =>
        expect(await view(session)).toMatchObject({ state: 'running', host_id: other.hostId }),
      );
    }
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded', state_lost: false } });
  });

  test('suspends those that are idle where there is no other host, and leaves those that are not', async () => {
    const [idle, busy, paused] = [await open(), await open(), await open()];
    const waiting = busy.stub.execute(call('x'));
    await host.until(() => running.length === 1);
    await paused.stub.pause(caller);
    await drain();
    for (const session of [idle, paused]) {
      await eventually(async () => expect((await view(session)).state).toBe('suspended'));
    }
    expect(await view(busy)).toMatchObject({ state: 'running', host_id: host.hostId });
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded' } });
    // They come back on the next host that there is.
    const other = await connect();
    expect(await idle.stub.resume(caller)).toMatchObject({ value: { host_id: other.hostId } });
  });
});
