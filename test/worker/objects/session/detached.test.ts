import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { concatBytes, fromBase64 } from '../../../../shared/encoding.ts';
import { READER_GRACE_MS, REPLAY_RING_BYTES, REPLAY_WINDOW_BYTES } from '../../../../shared/limits.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { EventReader, events } from '../../harness/event-reader.ts';
import { connectFakeHost } from '../../harness/fake-host.ts';
import { call, caller, openSession, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
beforeEach(async () => {
  host = await connectFakeHost();
  session = await openSession(host);
});
afterEach(() => host.close());

function letters(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => 97 + (index % 26));
}

async function detach(script: HostDouble['script']): Promise<string> {
  host.script = script;
  const accepted = await session.stub.execute(
    call('x', { body: { detach: true, encoding: 'base64', timeout_ms: 60_000 } }),
  );
  if (!accepted.ok) throw new Error(accepted.detail);
  return accepted.value.execution_id;
}

async function readAll(executionId: string): Promise<{ stdout: Uint8Array; gaps: number }> {
  const reader = new EventReader(await events(session, executionId, { encoding: 'base64' }));
  const pieces: Uint8Array[] = [];
  let gaps = 0;
  for (let event = await reader.next(); event !== undefined; event = await reader.next()) {
    if (event.data.event === 'gap') gaps += 1;
    if (event.data.event === 'stdout') pieces.push(fromBase64(event.data.text) ?? new Uint8Array(0));
  }
  return { stdout: concatBytes(pieces), gaps };
}

/** The grace that readers have does not end: what waits for it waits in vain. */
function withoutGrace(): void {
  const start = setTimeout;
  vi.spyOn(globalThis, 'setTimeout').mockImplementation((act, ms, ...given) =>
    ms === READER_GRACE_MS ? start(() => undefined, 0) : start(act, ms, ...given),
  );
  onTestFinished(() => void vi.restoreAllMocks());
}

describe('a detached execution', () => {
  test('gives its reader every byte, far beyond what a result holds', async () => {
    const output = letters(3_000_000);
    const begun = Promise.withResolvers<void>();
    const executionId = await detach(async (execution) => {
      execution.started();
      await begun.promise;
      await execution.write('stdout', output);
      await execution.finish();
    });
    const reading = readAll(executionId);
    begun.resolve();
    const { stdout, gaps } = await reading;
    expect(gaps).toBe(0);
    expect(stdout).toEqual(output);
  });

  test('gives every byte of the replay also to whoever comes after its end', async () => {
    const output = letters(3_000_000);
    const executionId = await detach(async (execution) => {
      execution.started();
      await execution.write('stdout', output);
      await execution.finish();
    });
    expect(await session.stub.wait(caller, executionId)).toMatchObject({ value: { status: 'succeeded' } });
    expect(await readAll(executionId)).toEqual({ stdout: output, gaps: 0 });
  });

  test('that nobody reads is not held back for a reader', async () => {
    const beyond = REPLAY_WINDOW_BYTES + 2 * REPLAY_RING_BYTES + 1_000_000;
    withoutGrace();
    const executionId = await detach(async (execution) => {
      execution.started();
      await execution.write('stdout', letters(beyond));
      await execution.finish();
    });
    expect(await session.stub.wait(caller, executionId)).toMatchObject({
      value: { status: 'succeeded', stdout_bytes: beyond, truncated: true },
    });
  });
});

describe('waiting for an execution', () => {
  test('ends with it, at once where it has ended, and not for somebody else', async () => {
    const go = Promise.withResolvers<void>();
    const executionId = await detach(async (execution) => {
      execution.started();
      await go.promise;
      await execution.finish();
    });
    const waiting = session.stub.wait(caller, executionId);
    go.resolve();
    expect(await waiting).toMatchObject({ value: { execution_id: executionId, status: 'succeeded' } });
    expect(await session.stub.wait(caller, executionId)).toMatchObject({ value: { status: 'succeeded' } });
    const other = { ...caller, subject: 'mallory' };
    expect(await session.stub.wait(other, executionId)).toMatchObject({ ok: false, code: 'not_found' });
  });
});

describe('the receipt of an execution that has none', () => {
  test('is refused with the reason: cancelled before it was sent', async () => {
    const go = Promise.withResolvers<void>();
    const first = await detach(async (execution) => {
      execution.started();
      await go.promise;
      await execution.finish();
    });
    const waiting = await session.stub.execute(call('y', { body: { detach: true } }));
    if (!waiting.ok) throw new Error(waiting.detail);
    await session.stub.interrupt(caller, waiting.value.execution_id);
    expect(await session.stub.receipt(caller, waiting.value.execution_id)).toMatchObject({
      code: 'not_found',
      detail: expect.stringContaining('cancelled before it was sent'),
    });
    expect(await session.stub.receipt(caller, first)).toMatchObject({ code: 'receipt_pending' });
    go.resolve();
    await session.stub.wait(caller, first);
    expect(await session.stub.receipt(caller, first)).toMatchObject({ ok: true });
  });

  test('is refused with the reason: refused by the host', async () => {
    const executionId = await detach((execution) => execution.refuse('tool_refused'));
    await session.stub.wait(caller, executionId);
    expect(await session.stub.receipt(caller, executionId)).toMatchObject({
      code: 'not_found',
      detail: 'there is no receipt: the host refused the call (tool_refused); nothing ran',
    });
  });

  test('is refused with the reason: its end was not signed before the session ended', async () => {
    const executionId = await detach((execution) => execution.started());
    await host.until(() => host.session(session.id).executions.size === 1);
    // The session is being destroyed as long as its host has not confirmed it.
    host.confirmDestroy = false;
    const destroyed = session.stub.destroy(caller);
    await expect
      .poll(() => session.stub.receipt(caller, executionId))
      .toMatchObject({ code: 'not_found', detail: expect.stringContaining('the session ended before') });
    expect(await destroyed).toMatchObject({ ok: true });
  });
});
