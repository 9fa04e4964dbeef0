/** F19: the session's object is lost between any two events, in each way in which that happens. */
import { abortAllDurableObjects, evictDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { verifyChain } from '../../../../shared/receipt-verify.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { EventReader, events } from '../../harness/event-reader.ts';
import { retireFakeHost } from '../../harness/fake-host.ts';
import { allKept, holdSession } from '../../harness/held-session.ts';
import {
  call,
  caller,
  openSession,
  sessionObject,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession());
});
afterEach(async () => {
  expect(host.failures).toEqual([]);
  await retireFakeHost(host);
});

const objectStub = () => sessionObject(session.id);
const double = () => host.session(session.id);

async function relink(): Promise<void> {
  await host.until(() => !double().isLinked);
  await double().connect();
  await host.until(() => double().isLinked);
}

/** How an object goes: with its links kept, with its links closed, or in the middle of what it was doing. */
const LOSSES = {
  'an eviction that keeps its links': () => evictDurableObject(objectStub()),
  'an eviction that closes its links': async () => {
    await evictDurableObject(objectStub(), { webSockets: 'close' });
    await relink();
  },
  'a reset': async () => {
    await abortAllDurableObjects();
    await host.until(() => host.controlEpoch === 0);
    await host.connect();
    await relink();
  },
};

const settled = () => allKept(host, session);

/** One call, told of event by event; `between` comes after each of them. */
async function play(between: (event: number) => Promise<void>) {
  let event = 0;
  const happened = async (): Promise<void> => {
    await settled();
    await between(event);
    event += 1;
  };
  const body = { detach: true };
  const accepted = await sessionStub(session.id).execute(call('x', { key: 'once', body }));
  if (!accepted.ok) throw new Error(accepted.detail);
  const id = accepted.value.execution_id;
  await host.until(() => running.length > 0);
  const execution = running[0];
  if (execution === undefined) throw new Error('nothing runs');
  await happened();
  execution.started();
  await happened();
  await execution.write('stdout', 'one ');
  await happened();
  await execution.write('stderr', 'warning');
  await happened();
  await execution.write('stdout', 'zwei, ünï');
  await happened();
  execution.part('value', '42');
  await happened();
  await execution.finish();
  await happened();
  return { id, events: event, answers: await answersAbout(id) };
}

/** All that the API says of the call, but for what differs between any two runs. */
async function answersAbout(id: string) {
  const stub = sessionStub(session.id);
  const found = await stub.getExecution(caller, id);
  const exported = await stub.receipts(caller, WHOLE_CHAIN);
  const again = await stub.execute(call('x', { key: 'once', body: { detach: true } }));
  if (!found.ok || !exported.ok || !again.ok) throw new Error('the session does not answer');
  const { receipts, keys } = exported.value;
  const read = await new EventReader(await events(session, id)).toEnd();
  const { status, exit_code, stdout, stderr, stdout_bytes, stderr_bytes, value, truncated, state_lost } =
    found.value;
  return {
    result: { status, exit_code, stdout, stderr, stdout_bytes, stderr_bytes, value, truncated, state_lost },
    text: ['stdout', 'stderr'].map((stream) =>
      read.map(({ data }) => (data.event === stream && 'text' in data ? data.text : '')).join(''),
    ),
    chain: await verifyChain(receipts, keys, session.id).then(({ ok }) => [ok, receipts.length]),
    isOneCall: again.value.execution_id === id,
    starts: double().starts.get(id),
  };
}

async function faultFree() {
  return play(async () => undefined);
}

describe.each(Object.entries(LOSSES))('F19: with %s', (_name, lose) => {
  test('after each event of a call, all that is said of it is as without', async () => {
    const expected = await faultFree();
    expect(expected.answers.result).toMatchObject({ status: 'succeeded', value: '42' });
    running.length = 0;
    session = await openSession(host);
    const lost = await play(lose);
    expect(lost.answers).toEqual(expected.answers);
  });

  test('after any one event of a call, all that is said of it is as without', async () => {
    const expected = await faultFree();
    for (let at = 0; at < expected.events; at += 1) {
      running.length = 0;
      session = await openSession(host);
      const lost = await play(async (event) => {
        if (event === at) await lose();
      });
      expect(lost.answers, `lost after event ${at}`).toEqual(expected.answers);
    }
  }, 60_000);
});
