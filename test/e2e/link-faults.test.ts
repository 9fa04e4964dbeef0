/** Faults on the link between a real agent and the real edge, made by a proxy between them. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { LINK_WINDOW_BYTES } from '../../shared/limits.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { FaultProxy } from '../fixtures/fault-proxy.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { hearToEnd } from './event-socket.ts';
import { begin, follow, outputOf, type Program, type ScriptedHost, ScriptedStack } from './scripted-stack.ts';
import { pause, until } from './until.ts';

/** So that what a heartbeat finds is found within seconds, and a busy machine is not taken for a dead link. */
const timing = { heartbeatMs: 500, pongTimeoutMs: 8_000 };
/** Of the streams that are read while their edge is killed, so many on sockets too. */
const ON_SOCKETS = 3;
const program: Program = { name: 'p', pieces: 200, pieceBytes: 2_000, everyMs: 10 };

let edge: ScriptedStack;
let proxy: FaultProxy;
let host: ScriptedHost;
let session: SessionClient;

beforeAll(async () => {
  edge = await ScriptedStack.start();
  proxy = await FaultProxy.start(edge.stack.url);
  host = await edge.addHost({ edgeUrl: proxy.url, timing });
  session = await edge.api.open();
}, 600_000);
afterEach(() => proxy.heal());
afterAll(async () => {
  proxy.heal();
  await edge.stop();
  await proxy.stop();
});

let programs = 0;
async function beginOne(changes: Partial<Program> = {}): Promise<{ id: string; program: Program }> {
  programs += 1;
  const one = { ...program, name: `p${programs}`, ...changes };
  return { id: await begin(session, one), program: one };
}

async function hasPrinted(id: string): Promise<void> {
  await until('it has printed', PATIENCE_MS, async () =>
    (await session.execution(id)).stdout_bytes > 0 ? true : undefined,
  );
}

/** Undefined while the edge has no host. */
async function openIfThere(): Promise<SessionClient | undefined> {
  return edge.api.open().catch((error: unknown) => {
    if (error instanceof Refused && error.problem.retryable) return undefined;
    throw error;
  });
}

/** Every byte once, as it was written and as the host has signed it, of a program that was started once. */
async function expectWhole({ id, program: one }: { id: string; program: Program }): Promise<void> {
  const { stdoutBytes, stderrBytes, gaps, end } = await follow(session, id);
  expect(gaps).toEqual([]);
  const expected = outputOf(one);
  expect(stdoutBytes.toString()).toBe(expected.stdout.toString());
  expect(stderrBytes.toString()).toBe(expected.stderr.toString());
  expect(end).toMatchObject({ status: 'succeeded', state_lost: false });
  const read = readReceipt(await session.receipt(id));
  if (!read.ok) throw new Error(read.detail);
  expect(read.value.receipt.stdout.bytes).toBe(expected.stdout.length);
  expect(host.sandboxes.calls.filter(({ call }) => call.executionId === id)).toHaveLength(1);
}

describe('a link', () => {
  test('F11 that is down for five seconds loses nothing', async () => {
    const one = await beginOne();
    await hasPrinted(one.id);
    proxy.accepts = false;
    proxy.reset();
    await pause(5_000);
    proxy.heal();
    await expectWhole(one);
  }, 240_000);

  test.each([
    ['F13 on which nothing passes any more', ['up', 'down']],
    ['F14 on which nothing comes down', ['down']],
    ['F14 on which nothing goes up', ['up']],
  ] as const)(
    '%s is given up and made anew, and nothing starts twice',
    async (_name, directions) => {
      const one = await beginOne();
      await hasPrinted(one.id);
      const { connections } = proxy;
      for (const direction of directions) proxy.swallow(direction);
      await until('a new attempt', PATIENCE_MS, async () =>
        proxy.connections > connections ? true : undefined,
      );
      await expectWhole(one);
    },
    240_000,
  );

  test('F15 that repeats messages, cuts them into bytes and is slow is like any other', async () => {
    // The first messages of a link are those of its making: a second hello is a fault of the host, not of the way.
    const later = (n: number) => n > 2 && n % 3 === 0;
    Object.assign(proxy.up, { duplicate: later, sliceBytes: 700, latencyMs: 30 });
    Object.assign(proxy.down, { sliceBytes: 7, latencyMs: 30 });
    proxy.reset();
    const one = await beginOne({ pieces: 60 });
    await expectWhole(one);
  }, 240_000);

  test('F15 that is reset again and again in the middle of messages comes to the same', async () => {
    Object.assign(proxy.up, { sliceBytes: 900, latencyMs: 5 });
    const one = await beginOne({ pieces: 300 });
    await hasPrinted(one.id);
    for (let cut = 0; cut < 8; cut += 1) {
      await pause(400);
      proxy.reset();
    }
    proxy.heal();
    await expectWhole(one);
  }, 240_000);

  test('F16 that changes a byte never makes a result of it', async () => {
    const one = await beginOne({ pieces: 60, pieceBytes: 10_000, everyMs: 50 });
    await hasPrinted(one.id);
    let changed = false;
    proxy.up.corrupt = (n) => {
      if (changed || n < 3) return false;
      changed = true;
      return true;
    };
    const ended = await session.ended(one.id, 90_000);
    expect(changed).toBe(true);
    // A header that is none any more is sent anew; output that is other than what was signed is not accepted.
    if (ended.status === 'succeeded') await expectWhole(one);
    else expect(ended).toMatchObject({ status: 'unknown', reason: 'receipt_refused' });
    proxy.heal();
    session = await until('the host is back', PATIENCE_MS, openIfThere);
    await expectWhole(await beginOne({ pieces: 5 }));
  }, 240_000);

  test('F17 that passes a kilobyte a second holds the program, and lets it go when it is free', async () => {
    proxy.up.bytesPerS = 1_024;
    const one = await beginOne({ pieces: 400, pieceBytes: 20_000, everyMs: 0 });
    const call = await until('it runs', PATIENCE_MS, () =>
      host.sandboxes.calls.find(({ call: { executionId } }) => executionId === one.id),
    );
    await pause(5_000);
    // Eight megabytes are to be written: the window of the link, what the system holds, and no more.
    const written = Buffer.byteLength(JSON.stringify(await session.execution(one.id)));
    expect(written).toBeLessThan(LINK_WINDOW_BYTES);
    let isOver = false;
    void call.finished.then(() => {
      isOver = true;
    });
    await pause(500);
    expect(isOver).toBe(false);
    proxy.heal();
    const { end, gaps, stdoutBytes } = await follow(session, one.id);
    expect(end?.status).toBe('succeeded');
    expect(end?.stdout_bytes).toBe(outputOf(one.program).stdout.length);
    const missing = gaps.reduce(
      (sum, { stream, from, to }) => sum + (stream === 'stdout' ? to - from : 0),
      0,
    );
    expect(stdoutBytes.length + missing).toBe(outputOf(one.program).stdout.length);
  }, 240_000);
});

describe('F20, F21 an edge that is killed under fifty open streams', () => {
  test('has its host and all of its readers back, and each stream is whole', async () => {
    const sessions: SessionClient[] = [];
    while (sessions.length < 50) {
      sessions.push(...(await Promise.all(Array.from({ length: 10 }, () => edge.api.open()))));
    }
    const runs = await Promise.all(
      sessions.map(async (one, index) => {
        const own = { ...program, name: `s${index}`, pieces: 80, everyMs: 100 };
        return { one, own, id: await begin(one, own) };
      }),
    );
    const reading = runs.map(({ one, id }) => follow(one, id));
    const hearing = runs.slice(0, ON_SOCKETS).map(({ one, id }) => hearToEnd(one, id));
    await pause(1_500);
    edge.stack.crashWorkerd();
    const ends = await Promise.all(reading);
    for (const [index, { stdoutBytes, gaps, end }] of ends.entries()) {
      const run = runs[index];
      if (run === undefined) throw new Error('no such run');
      expect(gaps).toEqual([]);
      expect(end?.status).toBe('succeeded');
      expect(Buffer.compare(stdoutBytes, outputOf(run.own).stdout)).toBe(0);
      expect(host.sandboxes.calls.filter(({ call }) => call.executionId === run.id)).toHaveLength(1);
    }
    for (const [index, events] of (await Promise.all(hearing)).entries()) {
      const texts = events.map((event) => (event.event === 'stdout' ? event.text : ''));
      expect(texts.join('')).toBe(ends[index]?.stdoutBytes.toString());
      expect(events.filter(({ event }) => event === 'gap' || event === 'end')).toHaveLength(1);
    }
    await Promise.all(sessions.map((one) => one.delete()));
  }, 180_000);
});

describe('F32 a caller that goes away', () => {
  test('takes nothing with it: the call runs to its end, and its stream is there', async () => {
    programs += 1;
    const own = { ...program, name: `gone${programs}`, pieces: 100 };
    const stream = await session.stream('shell', { command: JSON.stringify(own) });
    let id = '';
    // To leave the loop cancels the body, which is what a client does that goes away.
    for await (const { event } of stream) {
      if (event.event !== 'started') continue;
      id = event.execution_id;
      break;
    }
    await expectWhole({ id, program: own });
  }, 240_000);
});
