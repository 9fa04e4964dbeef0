/** F23: alarms that ring twice, that come late, and that fail again and again. */
import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { eventually } from '../../harness/eventually.ts';
import { allKept, holdSession } from '../../harness/held-session.ts';
import { call, caller, sessionObject, type TestSession } from '../../harness/sessions.ts';

const MINUTE_MS = 60_000;
let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession());
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

const objectStub = () => sessionObject(session.id);
const hostStub = () => env.HOST.get(env.HOST.idFromName(host.hostId));

async function start(command: string): Promise<string> {
  const accepted = await session.stub.execute(call(command, { body: { detach: true } }));
  if (!accepted.ok) throw new Error(accepted.detail);
  await host.until(() => running.some(({ id }) => id === accepted.value.execution_id));
  running.at(-1)?.started();
  await allKept(host, session);
  return accepted.value.execution_id;
}

async function result(id: string) {
  const found = await session.stub.getExecution(caller, id);
  if (!found.ok) throw new Error(found.detail);
  return found.value;
}

const stateOfSession = async () => {
  const described = await session.stub.describe(caller);
  return described.ok ? described.value.state : described.code;
};

/** The host is gone, and nobody looked for so long. */
async function leftFor(ms: number): Promise<void> {
  host.close();
  for (const stub of [hostStub(), objectStub()]) {
    await eventually(async () => expect(await socketsOf(stub)).toBe(0));
  }
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
}

const socketsOf = (stub: DurableObjectStub) =>
  runInDurableObject(stub, (_object, state) => state.getWebSockets().length);

const alarmAtMs = () => runInDurableObject(objectStub(), (_object, state) => state.storage.getAlarm());

describe('F23: an alarm of a session', () => {
  test('that rings twice, and twice more, ends what it ends once', async () => {
    const id = await start('x');
    await leftFor(MINUTE_MS + 45_000);
    await Promise.all([runDurableObjectAlarm(objectStub()), runDurableObjectAlarm(objectStub())]);
    await eventually(async () => expect(await result(id)).toMatchObject({ status: 'unknown' }));
    const ended = await result(id);
    await runDurableObjectAlarm(objectStub());
    await runDurableObjectAlarm(objectStub());
    expect(await result(id)).toEqual(ended);
    const listed = await session.stub.listExecutions(caller, { limit: 10 });
    expect(listed).toMatchObject({ value: { executions: [{ execution_id: id, status: 'unknown' }] } });
  });

  test('that comes ten minutes late still ends the call, the lease and the session', async () => {
    const id = await start('x');
    await leftFor(10 * MINUTE_MS);
    await runDurableObjectAlarm(hostStub());
    await runDurableObjectAlarm(objectStub());
    await eventually(async () => expect(await result(id)).toMatchObject({ status: 'unknown' }));
    await eventually(async () => expect(await stateOfSession()).toBe('error'));
    const refused = await session.stub.execute(call('more'));
    expect(refused).toMatchObject({ ok: false, code: 'session_failed' });
  });

  test('that fails six times is set again each time, and does its work when it can', async () => {
    const id = await start('x');
    await leftFor(2 * MINUTE_MS);
    const mend = await breakOthers();
    for (let failed = 0; failed < 6; failed += 1) {
      await runDurableObjectAlarm(objectStub()).catch(() => undefined);
      const atMs = await alarmAtMs();
      expect(atMs, `after failure ${failed + 1}`).not.toBeNull();
      expect((atMs ?? 0) - Date.now()).toBeLessThanOrEqual(MINUTE_MS);
    }
    expect(await stateOfSession()).toBe('running');
    mend();
    await runDurableObjectAlarm(objectStub());
    await eventually(async () => expect(await result(id)).toMatchObject({ status: 'unknown' }));
    await eventually(async () => expect(await stateOfSession()).toBe('error'));
  });
});

/** Everything that the object asks of others fails, until what this gives is called. */
async function breakOthers(): Promise<() => void> {
  const mends: (() => void)[] = [];
  await runInDurableObject(objectStub(), (object) => {
    const bindings: unknown = Reflect.get(object, 'env');
    if (typeof bindings !== 'object' || bindings === null) throw new Error('the object has no bindings');
    for (const name of ['HOST', 'TENANT', 'POOL']) {
      const sound: unknown = Reflect.get(bindings, name);
      const broken = () => {
        throw new Error('broken by the test');
      };
      Reflect.set(bindings, name, { getByName: broken });
      mends.push(() => Reflect.set(bindings, name, sound));
    }
  });
  return () => {
    for (const mend of mends) mend();
  };
}
