import { evictDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { concatBytes } from '../../../../shared/encoding.ts';
import { MAX_STDIN_BYTES, STDIN_WINDOW_BYTES } from '../../../../shared/limits.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { allKept } from '../../harness/held-session.ts';
import { call, caller, openSession, sessionObject, type TestSession } from '../../harness/sessions.ts';

const END = new Uint8Array(0);
let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble;
let answer: ReturnType<TestSession['stub']['execute']>;

beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
  await begin({ stdin: true });
});
afterEach(() => host.close());

async function begin(body: Record<string, unknown>): Promise<void> {
  const started = Promise.withResolvers<void>();
  host.script = (execution) => {
    running = execution;
    running.readsStdin = false;
    execution.started();
    started.resolve();
  };
  answer = session.stub.execute(call('cat', { body }));
  await started.promise;
}

const write = (bytes: Uint8Array, eof = false) => session.stub.stdin(caller, running.id, bytes, eof);
const filled = (length: number, letter = 'a') => new Uint8Array(length).fill(letter.charCodeAt(0));

const settled = () => allKept(host, session);

async function received(length: number): Promise<Uint8Array> {
  await host.until(() => running.stdin.reduce((total, { length: bytes }) => total + bytes, 0) >= length);
  return concatBytes(running.stdin);
}

async function relink(): Promise<void> {
  const double = host.session(session.id);
  double.drop();
  await double.connect();
  await host.until(() => double.isLinked);
}

describe('input of an execution', () => {
  test('waits for the program to read it, and is refused beyond a bound instead of lost', async () => {
    await running.finish();
    await answer;
    await begin({ detach: true });
    const pieces = STDIN_WINDOW_BYTES / MAX_STDIN_BYTES;
    for (let n = 0; n < pieces; n += 1)
      expect(await write(filled(MAX_STDIN_BYTES))).toMatchObject({ ok: true });
    const refused = { ok: false, code: 'queue_full', retry_after_s: 1 };
    expect(await write(filled(1, 'b'))).toMatchObject(refused);
    // What it counted survives this object.
    await evictDurableObject(sessionObject(session.id));
    expect(await write(filled(1, 'b'))).toMatchObject(refused);
    await received(STDIN_WINDOW_BYTES);
    running.readStdin();
    await settled();
    expect(await write(filled(1, 'c'), true)).toMatchObject({ ok: true });
    await running.stdinClosed;
    const whole = await received(STDIN_WINDOW_BYTES + 1);
    expect(whole.length).toBe(STDIN_WINDOW_BYTES + 1);
    expect(whole.at(-1)).toBe('c'.charCodeAt(0));
  });

  test('may be ended while the program has read nothing of it', async () => {
    for (let n = 0; n < 2; n += 1) await write(filled(STDIN_WINDOW_BYTES / 2));
    expect(await write(END, true)).toMatchObject({ ok: true });
    await running.stdinClosed;
    const closed = { ok: false, code: 'execution_not_running' };
    expect(await write(filled(1))).toMatchObject(closed);
    expect(await write(END, true)).toMatchObject(closed);
  });

  test('comes in the order of its calls, whatever their length', async () => {
    const lengths = [400_000, 1, 300_000, 2, 3, 200_000, 4];
    const letters = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
    const written = lengths.map((length, index) => write(filled(length, letters[index])));
    const interrupted = session.stub.interrupt(caller, running.id);
    expect((await Promise.all(written)).every(({ ok }) => ok)).toBe(true);
    await interrupted;
    const total = lengths.reduce((sum, length) => sum + length, 0);
    const text = new TextDecoder().decode(await received(total));
    expect(text.replaceAll(/(.)\1*/g, '$1')).toBe(letters.join(''));
    const seqs = host.commands
      .filter(({ claims }) => claims.sid === session.id)
      .map(({ claims }) => claims.seq);
    expect(seqs).toEqual(seqs.toSorted((left, right) => left - right));
  });

  test('that may have been lost with the link is followed by none', async () => {
    expect(await write(filled(3))).toMatchObject({ ok: true });
    await received(3);
    await relink();
    const doubtful = { ok: false, code: 'host_unresponsive' };
    expect(await write(filled(1, 'b'))).toMatchObject(doubtful);
    expect(await write(END, true)).toMatchObject(doubtful);
    running.readStdin();
    await settled();
    expect(await write(filled(1, 'b'))).toMatchObject({ ok: true });
    expect(new TextDecoder().decode(await received(4))).toBe('aaab');
  });

  test('that the host refuses is followed by none', async () => {
    await write(filled(1));
    await received(1);
    const grant = host.commands.findLast(({ claims }) => claims.act === 'stdin');
    host.session(session.id).send({
      type: 'refused',
      execution_id: null,
      grant_jti: grant?.claims.jti ?? '',
      code: 'execution_not_running',
      detail: 'the program closed it',
    });
    await settled();
    expect(await write(filled(1))).toMatchObject({ ok: false, code: 'execution_not_running' });
    await running.finish();
    expect(await answer).toMatchObject({ value: { status: 'succeeded' } });
  });

  test('is not taken where the call has none', async () => {
    await running.finish();
    await answer;
    await begin({});
    expect(await write(filled(1))).toMatchObject({ ok: false, code: 'execution_not_running' });
  });

  test('with the link down is refused and not counted', async () => {
    host.session(session.id).drop();
    for (let n = 0; n < 4; n += 1) {
      await expect
        .poll(async () => write(filled(MAX_STDIN_BYTES)))
        .toMatchObject({ code: 'host_unresponsive' });
    }
    await host.session(session.id).connect();
    await host.until(() => host.session(session.id).isLinked);
    expect(await write(filled(MAX_STDIN_BYTES))).toMatchObject({ ok: true });
  });
});
