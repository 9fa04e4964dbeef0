/** A host that is drained becomes empty: its sessions go elsewhere, with what runs in them. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import { type HostDouble, startAmong } from '../../../fixtures/host-double/host-double.ts';

import { api } from '../../harness/api.ts';
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

describe('draining a host', () => {
  test('moves its sessions to another one, also in the middle of a call', async () => {
    const [idle, busy] = [await open(), await open()];
    const waiting = busy.stub.execute(call('x'));
    await host.until(() => running.length === 1);
    const other = await connect();
    await drain();
    for (const session of [idle, busy]) {
      await vi.waitFor(
        async () => expect(await view(session)).toMatchObject({ state: 'running', host_id: other.hostId }),
        { timeout: 10_000 },
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
      await vi.waitFor(async () => expect((await view(session)).state).toBe('suspended'), {
        timeout: 10_000,
      });
    }
    expect(await view(busy)).toMatchObject({ state: 'running', host_id: host.hostId });
    await running[0]?.finish();
    expect(await waiting).toMatchObject({ value: { status: 'succeeded' } });
    // They come back on the next host that there is.
    const other = await connect();
    expect(await idle.stub.resume(caller)).toMatchObject({ value: { host_id: other.hostId } });
  });
});
