/** Pause and resume on real sandboxes. */
import { setTimeout as wait } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();

const TICKS = 200;
/** Less than what the program and its pauses take. */
const TIMEOUT_MS = 20_000;
const ON_THEIR_WAY_MS = 2_000;
const TICKER = `import time
for n in range(${TICKS}):
    print(n, flush=True)
    time.sleep(0.02)`;

function move(session: SessionClient, act: 'pause' | 'resume') {
  return session.api.json(SessionSchema, 'POST', `${session.path}/${act}`);
}

describe('a session in the middle of a call', () => {
  test('prints nothing on pause, loses no number, and its timeout does not count it', async () => {
    const session = await stack().open();
    const stream = await session.stream('python', { code: TICKER }, { timeoutMs: TIMEOUT_MS });
    const events: SeenEvent[] = [];
    const pauses: Promise<void>[] = [];
    const standstills: { fromMs: number; toMs: number }[] = [];
    const pauseFor = async (ms: number): Promise<void> => {
      expect((await move(session, 'pause')).value.state).toBe('paused');
      const fromMs = performance.now();
      await wait(ms);
      standstills.push({ fromMs, toMs: performance.now() });
      expect((await move(session, 'resume')).value.state).toBe('running');
    };
    let printed = '';
    for await (const seen of stream) {
      events.push(seen);
      if (seen.event.event === 'stdout') printed += seen.event.text;
      if (pauses.length === 0 && printed.includes('\n20\n')) pauses.push(pauseFor(TIMEOUT_MS - 3_000));
      if (pauses.length === 1 && printed.includes('\n120\n')) pauses.push(pauseFor(4_000));
    }
    await Promise.all(pauses);
    const { stdout, end } = collected(events);
    expect(end?.status).toBe('succeeded');
    expect(stdout).toBe(Array.from({ length: TICKS }, (_, n) => `${n}\n`).join(''));
    expect(standstills).toHaveLength(2);
    for (const { fromMs, toMs } of standstills) {
      // The last bytes before it may be on their way to us when the pause is told.
      const inside = events.filter(
        ({ event, atMs }) => event.event === 'stdout' && atMs > fromMs + ON_THEIR_WAY_MS && atMs < toMs,
      );
      expect(inside).toEqual([]);
    }
    expect(events.filter(({ event }) => event.event === 'paused')).toHaveLength(2);
    expect(end?.duration_ms).toBeLessThan(TIMEOUT_MS);
    await session.delete();
  });

  test('ends a call that is interrupted on pause, and keeps variables and background processes', async () => {
    const session = await stack().open();
    await session.py('kept = 41');
    await session.sh('(while true; do date +%s%N >/workspace/beat; sleep 0.05; done) >/dev/null 2>&1 &');
    const endless = await session.detach('python', { code: 'import time\nwhile True: time.sleep(0.01)' });
    await until('the call runs', PATIENCE_MS, async () =>
      (await session.execution(endless.execution_id)).status === 'running' ? true : undefined,
    );
    await move(session, 'pause');
    await session.interrupt(endless.execution_id);
    const ended = await session.ended(endless.execution_id, PATIENCE_MS);
    expect(ended.status).toBe('interrupted');
    expect((await session.describe()).state).toBe('paused');
    // A call of a paused session waits for it.
    const waiting = session.py('kept + 1');
    await move(session, 'resume');
    expect(await waiting).toMatchObject({ status: 'succeeded', value: '42' });
    const beat = (await session.sh('cat /workspace/beat')).stdout;
    await until('the background process goes on', PATIENCE_MS, async () =>
      (await session.sh('cat /workspace/beat')).stdout === beat ? undefined : true,
    );
    await session.delete();
  });

  test('is deleted on pause, and ends honestly where its host dies', async () => {
    const deleted = await stack().open();
    await deleted.detach('python', { code: 'while True: pass' });
    await move(deleted, 'pause');
    await deleted.delete();
    expect((await deleted.api.request('GET', deleted.path)).status).toBe(404);

    const session = await stack().open();
    const call = await session.detach('python', { code: 'while True: pass' });
    await until('the call runs', PATIENCE_MS, async () =>
      (await session.execution(call.execution_id)).status === 'running' ? true : undefined,
    );
    await move(session, 'pause');
    await stack().stack.crashHostAgent();
    const ended = await session.ended(call.execution_id, PATIENCE_MS);
    expect(ended).toMatchObject({ status: 'unknown', state_lost: true });
    await move(session, 'resume');
    expect(await session.py('1 + 1')).toMatchObject({ status: 'succeeded', value: '2' });
    await session.delete();
    expect(z.string().parse(ended.reason)).not.toBe('');
  });
});
