/** A session of the tests that is suspended and brought back: its hosts, its calls, and what is stored of it. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import { type HostDouble, startAmong } from '../../fixtures/host-double/host-double.ts';
import { eventually } from './eventually.ts';
import { connectFakeHost, retireFakeHost } from './fake-host.ts';
import { call, caller, openSession, sessionObject, sessionStub, type TestSession } from './sessions.ts';

export let host: HostDouble;
export let session: TestSession;
export let running: ExecutionDouble[];
const hosts: HostDouble[] = [];

export async function connect(): Promise<HostDouble> {
  const connected = await connectFakeHost({
    script: startAmong(running),
  });
  hosts.push(connected);
  return connected;
}

export function useSuspendableSession(): void {
  beforeEach(async () => {
    running = [];
    host = await connect();
    session = await openSession(host);
  });
  afterEach(async () => {
    vi.useRealTimers();
    vi.restoreAllMocks();
    await session.stub.destroy(caller);
    for (const connected of hosts.splice(0)) await retireFakeHost(connected);
  });
}

/** After its object was lost a stub of before is of no use. */
export function findSessionAgain(): void {
  session = { ...session, stub: sessionStub(session.id) };
}

export const objectStub = () => sessionObject(session.id);
const indexStub = () => env.SNAPSHOT_INDEX.get(env.SNAPSHOT_INDEX.idFromName(caller.tenant));

export async function view() {
  const described = await session.stub.describe(caller);
  if (!described.ok) throw new Error(described.detail);
  return described.value;
}

/** What is stored of all snapshots, once what is to be removed has been. */
export async function stored(): Promise<string[]> {
  await runDurableObjectAlarm(indexStub());
  return (await env.SNAPSHOTS.list({ prefix: `${caller.tenant}/` })).objects.map(({ key }) => key);
}

export async function start(command: string): Promise<ExecutionDouble> {
  const accepted = await session.stub.execute(call(command, { body: { detach: true } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const id = accepted.value.execution_id;
  return eventually(() => {
    const execution = running.find((candidate) => candidate.id === id);
    if (execution === undefined) throw new Error('not started');
    return execution;
  });
}

/** Runs a call to its end. */
export async function run(command: string) {
  const before = running.length;
  const waiting = session.stub.execute(call(command));
  await eventually(() => expect(running.length).toBe(before + 1));
  await running.at(-1)?.finish();
  const done = await waiting;
  if (!done.ok) throw new Error(`${done.code}: ${done.detail}`);
  return done.value;
}
