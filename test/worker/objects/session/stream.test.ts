import { evictDurableObject } from 'cloudflare:test';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  INLINE_HEAD_BYTES,
  INLINE_TAIL_BYTES,
  READER_GRACE_MS,
  REPLAY_RING_BYTES,
  REPLAY_WINDOW_BYTES,
} from '../../../../shared/limits.ts';
import type { ExecutionDouble } from '../../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../../fixtures/host-double/host-double.ts';
import { assembled, EventReader, events, executeStream, type ReadEvent } from '../../harness/event-reader.ts';
import { allKept, holdSession } from '../../harness/held-session.ts';
import { call, caller, sessionObject, type TestSession } from '../../harness/sessions.ts';

let host: HostDouble;
let session: TestSession;
let running: ExecutionDouble[];

beforeEach(async () => {
  ({ host, session, running } = await holdSession());
});
afterEach(() => host.close());

const objectStub = () => sessionObject(session.id);

async function current(): Promise<ExecutionDouble> {
  await host.until(() => running.length > 0);
  const [execution] = running;
  if (execution === undefined) throw new Error('nothing runs');
  return execution;
}

const settled = () => allKept(host, session);

async function finished(write: (execution: ExecutionDouble) => Promise<void>): Promise<string> {
  host.script = async (execution) => {
    execution.started();
    await write(execution);
    await execution.finish();
  };
  const result = await session.stub.execute(call('x'));
  if (!result.ok) throw new Error(result.detail);
  return result.value.execution_id;
}

describe('an event stream', () => {
  test('gives lines while the program runs, in order, and the result at the end', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    expect((await stream.next())?.data.event).toBe('started');
    await execution.write('stdout', 'one\n');
    expect((await stream.next())?.data).toMatchObject({ event: 'stdout', text: 'one\n', offset: 0 });
    await execution.write('stderr', 'oops\n');
    expect((await stream.next())?.data).toMatchObject({ event: 'stderr', text: 'oops\n', offset: 0 });
    await execution.write('stdout', 'two\n');
    expect((await stream.next())?.data).toMatchObject({ event: 'stdout', text: 'two\n', offset: 4 });
    execution.part('result', 'iVBO', { mime: 'image/png' });
    execution.part('value', '42');
    await execution.finish();
    expect((await stream.next())?.data).toEqual({ event: 'result', mime: 'image/png', data: 'iVBO' });
    expect((await stream.next())?.data).toMatchObject({
      event: 'end',
      execution: {
        status: 'succeeded',
        value: '42',
        stdout: '',
        stderr: '',
        stdout_bytes: 8,
        stderr_bytes: 5,
      },
    });
    expect(await stream.next()).toBeUndefined();
  });

  test('names its place before the first event', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    await stream.next();
    expect(stream.comments).toBeGreaterThan(0);
    expect(stream.events[0]?.id).toBe(`${execution.id}:0:0:1`);
    await stream.cancel();
    await execution.finish();
  });

  test('goes on after every id of it with each byte once (R47)', async () => {
    const id = await finished(async (execution) => {
      for (const piece of ['a', 'bc', 'd', 'ef']) {
        await execution.write('stdout', piece);
        await execution.write('stderr', piece.toUpperCase());
        await settled();
      }
      execution.part('result', '{}', { mime: 'application/json' });
    });
    const whole = await new EventReader(await events(session, id)).toEnd();
    for (const [index, { id: lastEventId }] of whole.entries()) {
      const rest = await new EventReader(await events(session, id, { lastEventId })).toEnd();
      expect(rest).toEqual(whole.slice(index + 1));
    }
  });

  test('goes on from every byte of both streams', async () => {
    const id = await finished(async (execution) => {
      await execution.write('stdout', 'abcdef');
      await execution.write('stderr', 'xyz');
    });
    for (let stdout = 0; stdout <= 6; stdout += 1) {
      for (let stderr = 0; stderr <= 3; stderr += 1) {
        const lastEventId = `${id}:${stdout}:${stderr}:1`;
        const rest = await new EventReader(await events(session, id, { lastEventId })).toEnd();
        expect(assembled(rest, 'stdout')).toBe('abcdef'.slice(stdout));
        expect(assembled(rest, 'stderr')).toBe('xyz'.slice(stderr));
        expect(rest.filter(({ data }) => data.event === 'end')).toHaveLength(1);
        expect(rest.some(({ data }) => data.event === 'started')).toBe(false);
      }
    }
  });

  test('that is cut goes on while the program runs, in a mix of readers', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    await execution.write('stdout', 'before ');
    const last = await stream.until(({ data }) => data.event === 'stdout');
    await stream.cancel();
    await execution.write('stdout', 'between ');
    const again = new EventReader(await events(session, execution.id, { lastEventId: last.id }));
    const fromStart = new EventReader(await events(session, execution.id));
    await execution.write('stdout', 'after');
    await execution.finish();
    expect(assembled(await again.toEnd(), 'stdout')).toBe('between after');
    expect(assembled(await fromStart.toEnd(), 'stdout')).toBe('before between after');
    expect(host.session(session.id).starts.get(execution.id)).toBe(1);
  });

  test('gives bytes that are no text as base64 where that was asked for', async () => {
    const bytes = new Uint8Array([0x41, 0xff, 0xfe, 0x42]);
    const id = await finished((execution) => execution.write('stdout', bytes));
    const read = await new EventReader(await events(session, id, { encoding: 'base64' })).toEnd();
    expect(assembled(read, 'stdout')).toBe('A\u00ff\u00feB');
    expect(await session.stub.getExecution(caller, id, 'base64')).toMatchObject({
      value: { stdout: 'Qf/+Qg==' },
    });
    expect(await session.stub.getExecution(caller, id)).toMatchObject({
      value: { stdout: 'A\ufffd\ufffdB' },
    });
  });

  test('of a session is one of a bounded number, and the call for one more is not begun', async () => {
    const streams = [await executeStream(session, call('x'))];
    const execution = await current();
    execution.started();
    for (;;) {
      const response = await events(session, execution.id);
      if (response.status !== 200) {
        expect(await response.json()).toMatchObject({ code: 'quota_exceeded', retry_after_s: 1 });
        break;
      }
      streams.push(new EventReader(response));
    }
    expect(streams).toHaveLength(32);
    await expect(executeStream(session, call('y'))).rejects.toThrow('429');
    await streams.pop()?.cancel();
    await expect.poll(async () => (await events(session, execution.id)).status).toBe(200);
    await execution.finish();
    for (const stream of streams) {
      expect((await stream.toEnd()).at(-1)?.data.event).toBe('end');
    }
    expect(await session.stub.listExecutions(caller, { limit: 2 })).toMatchObject({
      value: { executions: [{ execution_id: execution.id }], next_cursor: null },
    });
  });

  test('that nobody reads is let go a minute after the end, and can be taken up again', async () => {
    const total = 3 * 1024 * 1024;
    host.script = async (execution) => {
      execution.started();
      await execution.write('stdout', 'z'.repeat(total));
      await execution.finish();
    };
    const stalled = await Promise.all(
      Array.from({ length: 32 }, async () => executeStream(session, call('x'))),
    );
    const isOver = async () => {
      const listed = await session.stub.listExecutions(caller, { limit: 1 });
      return listed.ok && listed.value.executions[0]?.finished_at !== null;
    };
    await expect.poll(isOver).toBe(true);
    const listed = await session.stub.listExecutions(caller, { limit: 1 });
    const id = (listed.ok && listed.value.executions[0]?.execution_id) || '';
    expect((await events(session, id)).status).toBe(429);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    const status = async () => {
      const response = await events(session, id);
      // An open stream takes the place that became free.
      await response.body?.cancel();
      return response.status;
    };
    await expect.poll(status).toBe(200);
    vi.useRealTimers();
    // Each looks at the time by itself: at least one was let go, whichever it was.
    let read: readonly ReadEvent[] = [];
    for (const stream of stalled) {
      read = await stream.toEnd();
      if (read.at(-1)?.data.event !== 'end') break;
    }
    expect(read.at(-1)?.data.event).not.toBe('end');
    const last = read.at(-1);
    const again = new EventReader(
      await events(session, last?.id.split(':')[0] ?? '', { lastEventId: last?.id ?? '' }),
    );
    await again.toEnd();
    const text = assembled([...read, ...again.events], 'stdout');
    expect(text).toBe('z'.repeat(total));
    expect(again.events.at(-1)?.data.event).toBe('end');
  });

  test('of somebody else does not exist', async () => {
    const id = await finished((execution) => execution.write('stdout', 'secret'));
    const response = await events(session, id, { caller: { tenant: 'acme', subject: 'mallory' } });
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ ok: false, code: 'not_found' });
  });
});

describe('output that is longer than its inline part', () => {
  test('is given with head and tail, true totals and a gap between (R28)', async () => {
    const total = 3 * 1024 * 1024;
    const id = await finished((execution) => execution.write('stdout', `first${'x'.repeat(total - 9)}last`));
    const result = await session.stub.getExecution(caller, id);
    if (!result.ok) throw new Error(result.detail);
    const { stdout, stdout_bytes, truncated } = result.value;
    expect({ stdout_bytes, truncated }).toEqual({ stdout_bytes: total, truncated: true });
    expect(stdout.startsWith('firstxxx')).toBe(true);
    expect(stdout.endsWith('xxxlast')).toBe(true);
    expect(stdout.length).toBeLessThan(INLINE_HEAD_BYTES + INLINE_TAIL_BYTES + 100);
    const read = await new EventReader(await events(session, id)).toEnd();
    expect(read.filter(({ data }) => data.event === 'gap').map(({ data }) => data)).toEqual([
      { event: 'gap', stream: 'stdout', from: INLINE_HEAD_BYTES, to: total - INLINE_TAIL_BYTES },
    ]);
  });

  test('but fits in head and tail is whole', async () => {
    const text = 'y'.repeat(INLINE_HEAD_BYTES + 1000);
    const id = await finished((execution) => execution.write('stdout', text));
    expect(await session.stub.getExecution(caller, id)).toMatchObject({
      value: { stdout: text, truncated: false, stdout_bytes: text.length },
    });
  });
});

describe('a stream beyond the replay window', () => {
  const CHUNK = 65_536;
  const chunk = (index: number) => new Uint8Array(CHUNK).fill(0x61 + (index % 26));

  test('reaches a reader whole, and holds the program back for one that is slow', async () => {
    const chunks = (REPLAY_WINDOW_BYTES + 4 * REPLAY_RING_BYTES) / CHUNK;
    let written = 0;
    host.script = async (execution) => {
      execution.started();
      for (; written < chunks; written += 1) await execution.write('stdout', chunk(written));
      await execution.finish();
    };
    const stream = await executeStream(session, call('x'));
    await stream.until(({ data }) => data.event === 'stdout');
    // The window, the ring and the credit of the link are full, and so are the buffers on the way here.
    await expect
      .poll(async () => {
        const before = written;
        await new Promise((resolve) => setTimeout(resolve, 300));
        return written === before && written > 0;
      })
      .toBe(true);
    expect(written).toBeLessThan(chunks);
    const read = await stream.toEnd();
    const text = assembled(read, 'stdout');
    expect(text.length).toBe(chunks * CHUNK);
    expect(text.includes('<')).toBe(false);
    for (let index = 0; index < chunks; index += 1) {
      expect(text.charCodeAt(index * CHUNK)).toBe(0x61 + (index % 26));
    }
    expect(read.at(-1)?.data).toMatchObject({
      event: 'end',
      execution: { status: 'succeeded', truncated: true },
    });
  });

  test('leaves a short one that comes after it whole, in the stream and in the result', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    const read = stream.toEnd();
    for (let index = 0; index < (REPLAY_WINDOW_BYTES + REPLAY_RING_BYTES) / CHUNK; index += 1) {
      await execution.write('stderr', chunk(index));
    }
    await execution.write('stdout', 'do');
    await settled();
    await execution.write('stdout', 'ne\n');
    await execution.finish();
    expect(assembled(await read, 'stdout')).toBe('done\n');
    expect((await read).at(-1)?.data).toMatchObject({ event: 'end', execution: { status: 'succeeded' } });
    expect(await session.stub.getExecution(caller, execution.id)).toMatchObject({
      value: { status: 'succeeded', stdout: 'done\n', stdout_bytes: 5 },
    });
    const again = await new EventReader(await events(session, execution.id)).toEnd();
    expect(assembled(again, 'stdout')).toBe('done\n');
  });

  test('leaves a short one whole across an eviction', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    const drained = stream.toEnd().catch(() => []);
    for (let index = 0; index < (REPLAY_WINDOW_BYTES + CHUNK) / CHUNK; index += 1) {
      await execution.write('stderr', chunk(index));
    }
    await execution.write('stdout', 'do');
    await settled();
    const double = host.session(session.id);
    double.drop();
    await stream.cancel();
    await drained;
    await evictDurableObject(objectStub());
    await double.connect();
    await host.until(() => double.isLinked);
    await execution.write('stdout', 'ne\n');
    await execution.finish();
    await settled();
    expect(await session.stub.getExecution(caller, execution.id)).toMatchObject({
      value: { status: 'succeeded', stdout: 'done\n' },
    });
    const read = await new EventReader(await events(session, execution.id)).toEnd();
    expect(assembled(read, 'stdout')).toBe('done\n');
  });

  test('that an eviction cut names the bytes that are gone as a gap', async () => {
    const stream = await executeStream(session, call('x'));
    const execution = await current();
    execution.started();
    const drained = stream.toEnd().catch(() => []);
    for (let index = 0; index < (REPLAY_WINDOW_BYTES + REPLAY_RING_BYTES) / CHUNK; index += 1) {
      await execution.write('stdout', chunk(index));
    }
    await settled();
    const double = host.session(session.id);
    double.drop();
    await stream.cancel();
    await drained;
    await evictDurableObject(objectStub());
    await double.connect();
    await host.until(() => double.isLinked);
    await execution.write('stdout', 'the end');
    await execution.finish();
    await settled();
    const read = await new EventReader(await events(session, execution.id)).toEnd();
    const total = REPLAY_WINDOW_BYTES + REPLAY_RING_BYTES + 7;
    const gaps = read.flatMap(({ data }) => (data.event === 'gap' ? [data] : []));
    let known = 0;
    for (const { data } of read) if (data.event === 'stdout') known += data.text.length;
    expect(known + gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0)).toBe(total);
    expect(gaps).toHaveLength(1);
    expect(assembled(read, 'stdout').endsWith('the end')).toBe(true);
  });

  test('that nobody reads holds its program no longer than its deadline, so that its end is heard', async () => {
    const timeoutMs = 2_000;
    host.script = async (execution) => {
      execution.started();
      const endAtMs = Date.now() + timeoutMs;
      for (let index = 0; Date.now() < endAtMs; index += 1) await execution.write('stdout', chunk(index));
      await execution.finish({ status: 'timeout', exit_code: null });
    };
    const stream = await executeStream(session, call('x', { body: { timeout_ms: timeoutMs } }));
    await stream.until(({ data }) => data.event === 'started');
    const isOver = async () => {
      const listed = await session.stub.listExecutions(caller, { limit: 1 });
      return listed.ok && listed.value.executions[0]?.finished_at !== null;
    };
    await expect.poll(isOver).toBe(true);
    expect((await stream.toEnd()).at(-1)?.data).toMatchObject({
      event: 'end',
      execution: { status: 'timeout', truncated: true },
    });
  });

  test('that nobody reads goes on after the grace, and names what it let go', async () => {
    const total = REPLAY_WINDOW_BYTES + 3 * REPLAY_RING_BYTES;
    const written = Promise.withResolvers<void>();
    host.script = async (execution) => {
      execution.started();
      for (let index = 0; index < total / CHUNK; index += 1) await execution.write('stdout', chunk(index));
      written.resolve();
      await execution.finish();
    };
    const stream = await executeStream(session, call('x'));
    await stream.until(({ data }) => data.event === 'started');
    const startedAtMs = Date.now();
    await written.promise;
    // Held back for the reader that does not read, and not for ever.
    expect(Date.now() - startedAtMs).toBeGreaterThan(READER_GRACE_MS - 1_000);
    const read = await stream.toEnd();
    let known = 0;
    let gone = 0;
    for (const { data } of read) {
      if (data.event === 'stdout') known += data.text.length;
      if (data.event === 'gap') gone += data.to - data.from;
    }
    expect(known + gone).toBe(total);
    expect(gone).toBeGreaterThan(0);
    expect(read.at(-1)?.data).toMatchObject({ event: 'end', execution: { status: 'succeeded' } });
  });
});
