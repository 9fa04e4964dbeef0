/** Links that break, stall and repeat: every byte arrives once, every command counts once. */
import { hash, randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LINK_WINDOW_BYTES } from '../../../shared/limits.ts';
import { readReceipt } from '../../../shared/receipt-verify.ts';
import { type AttachedSession, type LinkedHost, linkHost } from '../../fixtures/edge-double/host.ts';
import type { ScriptedCall } from '../../fixtures/edge-double/scripted-sandboxes.ts';

let host: LinkedHost;
let session: AttachedSession;
beforeEach(async () => {
  host = await linkHost();
  session = await host.attach();
});
afterEach(() => host.stop());

async function start(
  relay: 'full' | 'bounded' = 'full',
): Promise<{ call: ScriptedCall; executionId: string }> {
  const grant = await session.grants.execute('python', { code: 'x' }, { relay });
  session.peer.command(grant.token, grant.payload);
  const executionId = grant.claims.exec ?? '';
  return { call: await host.sandboxes.call(executionId), executionId };
}

async function digestInReceipt(executionId: string): Promise<string> {
  const { receipt } = await session.peer.finished(executionId);
  const read = readReceipt(receipt);
  if (!read.ok) throw new Error(read.detail);
  return read.value.receipt.stdout.sha256;
}

describe('a session link that is cut', () => {
  test('F11 in the middle of output delivers every byte once, as the receipt says', async () => {
    const { call, executionId } = await start();
    const bytes = randomBytes(3_000_000);
    const pieces = 30;
    const size = bytes.length / pieces;
    for (let piece = 0; piece < pieces; piece += 1) {
      await call.write('stdout', bytes.subarray(piece * size, (piece + 1) * size));
      if (piece % 7 !== 3) continue;
      session.peer.cut();
      await session.peer.linked();
    }
    call.end();
    await session.peer.finished(executionId);
    const received = session.peer.output(executionId, 'stdout');
    expect(received.equals(bytes)).toBe(true);
    expect(await digestInReceipt(executionId)).toBe(hash('sha256', bytes));
    expect(session.peer.hellos).toBeGreaterThan(3);
  });

  test('F15 sends again what was not acknowledged, and in the same numbers', async () => {
    session.peer.acknowledges = false;
    const { call, executionId } = await start();
    await call.write('stdout', 'once');
    call.end();
    await session.peer.finished(executionId);
    const frames = session.peer.frames.length;
    const acknowledged = session.peer.ofType('ready').length;
    const { arrivals } = session.peer;
    session.peer.acceptsStale();
    session.peer.cut();
    await session.peer.changes.until('the same frames again', () =>
      session.peer.arrivals >= arrivals + frames - acknowledged ? true : undefined,
    );
    expect(session.peer.frames).toHaveLength(frames);
    expect(session.peer.output(executionId, 'stdout').toString()).toBe('once');
  });

  test('F15 takes a command that comes again after the cut as the one it had', async () => {
    const grant = await session.grants.execute('python', { code: 'x' });
    session.peer.command(grant.token, grant.payload);
    const executionId = grant.claims.exec ?? '';
    const call = await host.sandboxes.call(executionId);
    session.peer.cut();
    await session.peer.linked();
    await session.peer.changes.until('a second hello', () => (session.peer.hellos > 1 ? true : undefined));
    session.peer.command(grant.token, grant.payload);
    call.end();
    await session.peer.finished(executionId);
    expect(host.sandboxes.calls).toHaveLength(1);
  });

  test('lets the program go on, and loses nothing of what ended meanwhile', async () => {
    const { call, executionId } = await start();
    host.edge.acceptsLinks = false;
    session.peer.cut();
    await call.write('stdout', 'said to nobody');
    call.end({ value: '1' });
    await host.edge.changes.until('an attempt', () => (host.edge.upgrades > 3 ? true : undefined));
    host.edge.acceptsLinks = true;
    const { outcome } = await session.peer.finished(executionId);
    expect(outcome.status).toBe('succeeded');
    expect(session.peer.output(executionId, 'stdout').toString()).toBe('said to nobody');
  });

  test('forgets the half of a command that came before', async () => {
    const big = { code: `#${'x'.repeat(300_000)}` };
    const grant = await session.grants.execute('python', big);
    const half = grant.payload.subarray(0, 196_608);
    session.peer.send({ type: 'command', grant: grant.token, part: 0, parts: 2 }, half);
    session.peer.cut();
    await session.peer.changes.until('a second hello', () => (session.peer.hellos > 1 ? true : undefined));
    session.peer.command(grant.token, grant.payload);
    const call = await host.sandboxes.call(grant.claims.exec ?? '');
    expect(call.call.arguments).toEqual(big);
    call.end();
    await session.peer.finished(grant.claims.exec ?? '');
  });
});

describe('an edge that acknowledges nothing', () => {
  beforeEach(() => {
    session.peer.acknowledges = false;
  });

  test('F17 holds the program back once the window is full, and lets it go on with an acknowledgement', async () => {
    const { call, executionId } = await start();
    const piece = randomBytes(100_000);
    let written = 0;
    let isDone = false;
    const program = (async () => {
      for (let count = 0; count < 60; count += 1) {
        await call.write('stdout', piece);
        written += piece.length;
      }
      isDone = true;
      call.end();
    })();
    await session.peer.changes.until('a full window', () =>
      session.peer.receivedBytes > LINK_WINDOW_BYTES - 200_000 ? true : undefined,
    );
    expect(isDone).toBe(false);
    expect(written).toBeLessThan(LINK_WINDOW_BYTES + 300_000);
    session.peer.acknowledges = true;
    session.peer.acknowledgeAll();
    await program;
    await session.peer.finished(executionId);
    expect(session.peer.output(executionId, 'stdout')).toHaveLength(60 * piece.length);
    expect(session.peer.highestUnackedBytes).toBeLessThanOrEqual(LINK_WINDOW_BYTES);
  });

  test('R28 does not hold a program back whose output nobody reads along: head and tail are kept', async () => {
    const { call, executionId } = await start('bounded');
    const lines = Array.from({ length: 400_000 }, (_, index) => `${index}\n`).join('');
    const bytes = Buffer.from(lines);
    for (let offset = 0; offset < bytes.length; offset += 65_536) {
      await call.write('stdout', bytes.subarray(offset, offset + 65_536));
    }
    call.end();
    session.peer.acknowledges = true;
    session.peer.acknowledgeAll();
    const { outcome } = await session.peer.finished(executionId);
    expect(outcome.stdout_bytes).toBe(bytes.length);
    const head = session.peer.output(executionId, 'stdout');
    expect(bytes.subarray(0, head.length).equals(head)).toBe(true);
    const tail = session.peer.tail(executionId, 'stdout');
    if (tail === undefined) throw new Error('no tail');
    expect(tail.offset + tail.bytes.length).toBe(bytes.length);
    expect(bytes.subarray(tail.offset).equals(tail.bytes)).toBe(true);
    expect(head.length + tail.bytes.length).toBeLessThanOrEqual(1024 * 1024);
    expect(await digestInReceipt(executionId)).toBe(hash('sha256', bytes));
  });

  test('still hears at once that a program ended, however little of its output it took', async () => {
    const { call, executionId } = await start();
    const writing = Array.from({ length: 40 }, () => call.write('stderr', randomBytes(65_536)));
    await session.peer.changes.until('a full window', () =>
      session.peer.receivedBytes > LINK_WINDOW_BYTES - 200_000 ? true : undefined,
    );
    call.end({ status: 'timeout', exitCode: null });
    await Promise.all(writing);
    session.peer.acknowledges = true;
    session.peer.acknowledgeAll();
    const { outcome } = await session.peer.finished(executionId);
    expect(outcome).toMatchObject({ status: 'timeout', stderr_bytes: 40 * 65_536 });
    expect(session.peer.output(executionId, 'stderr')).toHaveLength(40 * 65_536);
  });
});

describe('a sandbox', () => {
  test('F08 that dies ends its execution, then the session hears that it is lost', async () => {
    const { executionId } = await start();
    host.sandboxes.started[0]?.die('oom');
    const lost = await session.peer.frame('sandbox_lost');
    const { outcome } = await session.peer.finished(executionId);
    expect(lost.reason).toBe('oom');
    expect(outcome).toMatchObject({ status: 'oom', state_lost: true });
    const types = session.peer.frames.map(({ header }) => header.type);
    expect(types.indexOf('finished')).toBeLessThan(types.indexOf('sandbox_lost'));
    await session.peer.changes.until('the end of the link', () => session.peer.closeCodes[0]);
  });

  test('F12 whose session moved on to a higher epoch is destroyed without a word', async () => {
    await start();
    session.peer.fences = true;
    session.peer.cut();
    await host.sandboxes.changes.until('its end', () =>
      host.sandboxes.started[0]?.isDestroyed ? true : undefined,
    );
    await host.edge.changes.until('the load', () => {
      const load = host.edge.control.at(-1);
      return load?.type === 'load' && load.sandboxes === 0 ? true : undefined;
    });
    expect(session.peer.ofType('sandbox_lost')).toHaveLength(0);
  });

  test('that cannot be started is reported on the control link', async () => {
    host.sandboxes.startFailure = { ok: false, code: 'sandbox_failed', detail: 'scripted' };
    const { sessionId } = await host.requestAttach();
    const refusal = await host.edge.controlFrame('refused', ({ session_id }) => session_id === sessionId);
    expect(refusal).toMatchObject({ code: 'sandbox_failed', detail: 'scripted' });
  });
});

test('an agent that stops destroys its sandboxes, tells the edge, and leaves nothing to recover', async () => {
  const { executionId } = await start();
  await host.stopAgent();
  expect(host.sandboxes.started[0]?.isDestroyed).toBe(true);
  const { outcome } = await session.peer.finished(executionId);
  expect(outcome.status).toBe('crashed');
  expect((await session.peer.frame('sandbox_lost')).reason).toBe('destroyed');
  await host.edge.changes.until('the end of the control link', () => host.edge.controlCloseCodes[0]);
  expect(host.edge.controlCloseCodes).toEqual([4001]);
  const { upgrades } = host.edge;
  await host.restart();
  await host.agent.ready;
  expect(host.edge.upgrades - upgrades).toBe(1);
});
