import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { encodeBundle } from '../../../../shared/bundle.ts';
import { encodeFrame } from '../../../../shared/frames.ts';
import { newId as newHandle } from '../../../../shared/ids.ts';
import { MAX_FRAME_BYTES } from '../../../../shared/limits.ts';
import { echo, type HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { SessionDouble } from '../../../fixtures/host-double/session-double.ts';
import { STUCK_MS } from '../../../patience.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import {
  call,
  caller,
  createOn,
  newId,
  openSession,
  sessionStub,
  type TestSession,
  WHOLE_CHAIN,
} from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;

beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
});
afterEach(() => {
  vi.useRealTimers();
  host.close();
});

async function works(): Promise<void> {
  expect(await session.stub.execute(call('still'))).toMatchObject({
    ok: true,
    value: { status: 'succeeded', stdout: 'still' },
  });
}

async function loseSandbox(reason: 'oom' | 'crashed' | 'host_restarted' = 'crashed'): Promise<SessionDouble> {
  const double = host.session(session.id);
  double.send({ type: 'sandbox_lost', reason });
  await host.until(() => double.ackedSeq === double.lastSeq);
  return double;
}

describe('a session link', () => {
  test('that is made again takes the place of the one before', async () => {
    const double = host.session(session.id);
    await double.connect();
    await host.until(() => double.closes.length === 1);
    expect(double.closes).toEqual([{ code: 1000, reason: 'replaced' }]);
    await works();
  });

  test('of a lower epoch is fenced, and its frames change nothing', async () => {
    const old = await loseSandbox();
    await works();
    expect(host.session(session.id).epoch).toBe(2);
    await old.connect();
    await host.until(() => old.heard.some(({ type }) => type === 'fenced'));
    expect(old.heard.at(-1)).toEqual({ type: 'fenced', epoch: 2 });
    old.send({ type: 'sandbox_lost', reason: 'crashed' });
    await works();
    expect(host.session(session.id).epoch).toBe(2);
  });

  test('of another host is closed, and the session goes on with its own', async () => {
    const foreign = await connectFakeHost();
    foreign.dropControl();
    const own = host.session(session.id);
    const intruder = new SessionDouble(foreign, own.claims, own.attach);
    await intruder.connect();
    await host.until(() => intruder.closes.length === 1);
    expect(intruder.closes[0]?.code).toBe(1008);
    await works();
    foreign.close();
  });

  test('whose proof is by another key is closed (A51)', async () => {
    const own = host.session(session.id);
    const other = await connectFakeHost();
    other.dropControl();
    const { identity } = other;
    const intruder = new SessionDouble(host, own.claims, own.attach);
    intruder.identity = { ...identity, hostId: host.hostId };
    await intruder.connect();
    await host.until(() => intruder.closes.length === 1);
    expect(intruder.closes[0]?.code).toBe(1008);
    await works();
  });

  test('of a session that does not exist is fenced', async () => {
    const own = host.session(session.id);
    const orphan = new SessionDouble(host, { ...own.claims, sid: await newId() }, own.attach);
    await orphan.connect();
    await host.until(() => orphan.heard.some(({ type }) => type === 'fenced'));
  });

  const execution_id = newHandle('exe');
  test.each<[string, Uint8Array, number]>([
    ['a frame above the cap', new Uint8Array(MAX_FRAME_BYTES + 1), 1009],
    ['an empty frame', new Uint8Array(0), 1008],
    ['a bundle without a frame', new Uint8Array(2), 1008],
    ['a bundle that ends within a length', new Uint8Array([0, 0, 0, 0, 0]), 1008],
    ['a bundle with a frame that is longer than it', new Uint8Array([0, 0, 0, 0, 0, 9, 1]), 1008],
    ['a bundle in a bundle', encodeBundle([encodeBundle([new Uint8Array([0, 1, 0x7b])])]), 1008],
    ['a header that is longer than the frame', new Uint8Array([0xff, 0xff, 1]), 1008],
    ['a header that is not UTF-8', new Uint8Array([0, 2, 0xff, 0xfe]), 1008],
    ['a header that is not JSON', new Uint8Array([0, 1, 0x7b]), 1008],
    ['a type that does not exist', encodeFrame({ type: 'own', epoch: 1, seq: 9 }), 1008],
    [
      'a number that is none',
      encodeFrame({ type: 'output', epoch: 1, seq: '9', execution_id, stream: 'stdout', offset: 0 }),
      1008,
    ],
    ['a frame of the other direction', encodeFrame({ type: 'ack', epoch: 1, seq: 1 }), 1008],
    [
      'a second hello',
      encodeFrame({
        type: 'hello',
        protocol: 1,
        session_id: `ses_${'a'.repeat(38)}`,
        epoch: 1,
        stream_id: newHandle('lnk'),
      }),
      1008,
    ],
  ])('that brings %s is closed, and the object lives (A57)', async (_name, bytes, code) => {
    const double = host.session(session.id);
    double.sendRaw(bytes);
    await host.until(() => double.closes.length === 1);
    expect(double.closes[0]?.code).toBe(code);
    expect(await session.stub.describe(caller)).toMatchObject({ ok: true, value: { state: 'running' } });
    await double.connect();
    await host.until(() => double.isLinked);
    await works();
  });

  test('that brings more useless frames than any host is closed (A57)', async () => {
    // Time stands still: a slow machine gives nothing back.
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() });
    const double = host.session(session.id);
    const bytes = encodeFrame(
      { type: 'output', epoch: 1, seq: 1, execution_id, stream: 'stdout', offset: 0 },
      new Uint8Array(1),
    );
    for (let count = 0; count < 5_000 && double.closes.length === 0; count += 1) double.sendRaw(bytes);
    await host.until(() => double.closes.length === 1);
    expect(double.closes[0]?.code).toBe(1008);
    await double.connect();
    await host.until(() => double.isLinked);
    await works();
  });
});

describe('frames in one message', () => {
  test('are taken in their order, as if each had come alone', async () => {
    host.close();
    host = await connectFakeHost({ trustsGrants: true });
    session = await openSession(host);
    for (const text of ['a', 'b']) {
      expect(await session.stub.execute(call(text))).toMatchObject({
        value: { status: 'succeeded', stdout: text, receipt: { signatures: [{}, {}] } },
      });
    }
    const double = host.session(session.id);
    await host.until(() => double.ackedSeq === double.lastSeq);
    expect(await session.stub.receipts(caller, WHOLE_CHAIN)).toMatchObject({ value: { receipts: [{}, {}] } });
  });
});

describe('a sandbox that outlived the agent of its host', () => {
  test('goes on at once, with its state, under its epoch and on its chain', async () => {
    await works();
    const double = host.session(session.id);
    double.drop();
    double.newStream();
    await double.connect();
    await host.until(() => double.isLinked);
    const { image } = double.claims;
    const saidMs = performance.now();
    double.send({
      type: 'ready',
      sandbox_id: 'double-1',
      image,
      runsc_version: 'double',
      runsc_platform: 'none',
    });
    expect(await session.stub.execute(call('after'))).toMatchObject({
      value: { status: 'succeeded', stdout: 'after', state_lost: false },
    });
    // An agent that says nothing is waited for five seconds.
    expect(performance.now() - saidMs).toBeLessThan(4_000);
    expect(await session.stub.describe(caller)).toMatchObject({
      value: { epoch: 1, sandbox_id: 'double-1' },
    });
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    expect(exported.ok && exported.value.receipts).toHaveLength(2);
  });
});

describe('a lost sandbox', () => {
  test('is replaced at the next call, which says once that the state was lost', async () => {
    await works();
    await loseSandbox('host_restarted');
    expect(await session.stub.describe(caller)).toMatchObject({
      value: { state: 'running', sandbox_id: null },
    });
    const first = await session.stub.execute(call('a'));
    const second = await session.stub.execute(call('b'));
    expect(first).toMatchObject({ value: { status: 'succeeded', state_lost: true } });
    expect(second).toMatchObject({ value: { status: 'succeeded', state_lost: false } });
    expect(await session.stub.describe(caller)).toMatchObject({
      value: { epoch: 2, sandbox_id: 'double-2' },
    });
    // The chain goes on over the change of the sandbox.
    expect(host.session(session.id).attach.chain.seq).toBe(1);
    const exported = await session.stub.receipts(caller, WHOLE_CHAIN);
    expect(exported.ok && exported.value.receipts).toHaveLength(3);
  });

  test('that no new one comes for ends the call as refused, and the next one tries again', async () => {
    await loseSandbox();
    host.refuseAttach = 'host_full';
    expect(await session.stub.execute(call('a'))).toMatchObject({
      value: { status: 'refused', reason: 'host_full' },
    });
    host.refuseAttach = undefined;
    expect(await session.stub.execute(call('b'))).toMatchObject({
      value: { status: 'succeeded', state_lost: true },
    });
  });

  test('under a call that had not started runs that in the next one, after what its host still has to tell', async () => {
    host.script = (execution) => execution.started();
    const first = session.stub.execute(call('first'));
    const double = host.session(session.id);
    await host.until(() => double.executions.size === 1);
    const [started] = double.executions.values();
    const second = session.stub.execute(call('second'));
    // The host is started anew: another stream, the end of what ran, then the loss.
    double.drop();
    host.script = echo;
    double.newStream();
    await double.connect();
    await host.until(() => double.isLinked);
    await started?.finish({ status: 'unknown', exit_code: null, reason: 'host_restarted', state_lost: true });
    expect(await first).toMatchObject({ value: { status: 'unknown', reason: 'host_restarted' } });
    double.send({ type: 'sandbox_lost', reason: 'host_restarted' });
    expect(await second).toMatchObject({
      value: { status: 'succeeded', stdout: 'second', state_lost: true },
    });
    expect(double.executions.size).toBe(1);
    expect(host.session(session.id).epoch).toBe(2);
  });

  test('that the host says only when a call comes is replaced, and the call runs once', async () => {
    let refusals = 0;
    host.script = (execution, sandbox) => {
      if (sandbox.epoch > 1) return echo(execution, sandbox);
      refusals += 1;
      execution.refuse('sandbox_failed');
      return undefined;
    };
    expect(await session.stub.execute(call('x'))).toMatchObject({
      value: { status: 'succeeded', stdout: 'x', state_lost: true },
    });
    expect(refusals).toBe(1);
    host.script = (execution) => execution.refuse('sandbox_failed');
    expect(await session.stub.execute(call('y'))).toMatchObject({
      value: { status: 'refused', reason: 'sandbox_failed', truncated: false },
    });
    expect(host.session(session.id).epoch).toBe(4);
  });

  test('in the middle of a call leaves it unknown when its end never comes', async () => {
    host.script = (execution) => execution.started();
    const answer = session.stub.execute(call('x'));
    await host.until(() => host.session(session.id).executions.size === 1);
    await loseSandbox('oom');
    expect(await answer).toMatchObject({ ok: false, code: 'host_unresponsive' });
    const listed = await session.stub.listExecutions(caller, { limit: 1 });
    // Nobody vouches for the output being whole.
    expect(listed).toMatchObject({
      value: { executions: [{ status: 'unknown', receipt: null, truncated: true }] },
    });
  });
});

describe('a create', () => {
  test('that the host refuses fails with its code, can be tried again, and leaves nothing in the list', async () => {
    const id = await newId();
    host.refuseAttach = 'host_full';
    expect(await createOn(host, id)).toMatchObject({ ok: false, code: 'host_full' });
    expect(await sessionStub(id).describe(caller)).toMatchObject({
      value: { state: 'error', error: { code: 'host_full' } },
    });
    host.refuseAttach = undefined;
    expect(await createOn(host, id)).toMatchObject({ ok: true, value: { state: 'running', epoch: 2 } });
  });

  test('in parallel with the same id makes one sandbox', async () => {
    const id = await newId();
    const created = await Promise.all([createOn(host, id), createOn(host, id)]);
    expect(created.map((answer) => answer.ok)).toEqual([true, true]);
    expect(host.commands.filter(({ claims }) => claims.sid === id && claims.act === 'attach')).toHaveLength(
      1,
    );
  });

  test('waits a moment for a host that dials again', async () => {
    host.dropControl();
    const status = async () => (await env.HOST.getByName(host.hostId).status()).connected;
    await expect.poll(status).toBe(false);
    const created = createOn(host, await newId());
    await expect.poll(status).toBe(false);
    await host.connect();
    expect(await created).toMatchObject({ ok: true, value: { state: 'running' } });
  });

  test('on a host that does not come back fails soon', async () => {
    host.dropControl();
    await expect.poll(async () => (await env.HOST.getByName(host.hostId).status()).connected).toBe(false);
    const startedAtMs = Date.now();
    expect(await createOn(host, await newId())).toMatchObject({ code: 'no_host_available' });
    expect(Date.now() - startedAtMs).toBeLessThan(STUCK_MS);
  });
});
