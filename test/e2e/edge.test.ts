/** The edge: quiet calls, restarts, and clocks that differ. */

import { describe, expect, test } from 'vitest';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import {
  isAnsweredOverMcp,
  isHeardOnSocket,
  isStreamed,
  linkWorksAtOnceAfter,
  staysWholeForItsViewer,
} from './quiet.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();
const LEEWAY_S = { atLeast: 30, atMost: 120 };

describe.concurrent('R15 a quiet call', () => {
  const quietS = 130;
  const command = `sleep ${quietS}; echo end`;
  const options = { timeoutMs: 180_000 };
  const testTimeoutMs = 400_000;

  test(
    'R15 of more than two minutes is answered as one request',
    async () => {
      const session = await stack().open();
      expect(await session.sh(command, options)).toMatchObject({ exit_code: 0, stdout: 'end\n' });
      await session.delete();
    },
    testTimeoutMs,
  );

  test(
    'R15 of more than two minutes is streamed, with a sign of life all along',
    () => isStreamed(stack(), quietS * 1_000),
    testTimeoutMs,
  );

  test(
    'R15 of more than two minutes is heard on a socket, with a sign of life all along',
    () => isHeardOnSocket(stack(), quietS * 1_000),
    testTimeoutMs,
  );

  test(
    'R15 of more than two minutes is answered over MCP',
    () => isAnsweredOverMcp(stack(), quietS * 1_000),
    testTimeoutMs,
  );

  test(
    'R15 of a viewer costs it nothing but what a gap says',
    () => staysWholeForItsViewer(stack(), quietS * 1_000),
    testTimeoutMs,
  );

  test(
    'R15 of more than two minutes is detached, watched and read',
    async () => {
      const session = await stack().open();
      const started = await session.detach('shell', { command }, options);
      const watching = (await session.events(started.execution_id)).collect();
      expect((await session.ended(started.execution_id, testTimeoutMs)).stdout).toBe('end\n');
      expect((await watching).stdout).toBe('end\n');
      await session.delete();
    },
    testTimeoutMs,
  );

  test(
    'R15 of Python is answered too',
    async () => {
      const session = await stack().open();
      const result = await session.py(`import time; time.sleep(${quietS}); 'end'`, options);
      expect(result).toMatchObject({ status: 'succeeded', value: "'end'" });
      await session.delete();
    },
    testTimeoutMs,
  );

  test(
    'R15 does not follow from a quiet session: its link works at once after minutes',
    () => linkWorksAtOnceAfter(stack(), quietS * 1_000, STUCK_MS),
    testTimeoutMs,
  );
});

describe('R24 an edge that restarts during a call', () => {
  const command = 'echo r >> /tmp/d; sleep 3; echo done';

  test('R24 gives the result to the same request with the same key, and the program ran once', async () => {
    const session = await stack().open();
    const send = () => session.sh(command, { idempotencyKey: 'deploy' });
    const cut = send().catch((error: unknown) => error);
    await until('the program runs', PATIENCE_MS, async () =>
      (await session.describe()).executions.running === 1 ? true : undefined,
    );
    await stack().restartEdge();
    expect(await cut).toBeInstanceOf(Error);
    const repeated = await until('the repeated request is answered', PATIENCE_MS, async () =>
      send().catch((error: unknown) => {
        if (error instanceof Refused && error.problem.retryable) return undefined;
        throw error;
      }),
    );
    expect(repeated).toMatchObject({ status: 'succeeded', stdout: 'done\n', state_lost: false });
    expect((await session.sh('wc -l < /tmp/d')).stdout).toBe('1\n');
    await session.delete();
  });

  test('R24 runs nothing again by itself when there was no key', async () => {
    const session = await stack().open();
    const cut = session.sh(command).catch((error: unknown) => error);
    await until('the program runs', PATIENCE_MS, async () =>
      (await session.describe()).executions.running === 1 ? true : undefined,
    );
    await stack().restartEdge();
    expect(await cut).toBeInstanceOf(Error);
    const [only, ...others] = (await session.executions()).executions;
    if (only === undefined) throw new Error('the execution is lost');
    expect(others).toEqual([]);
    expect(['succeeded', 'unknown']).toContain((await session.ended(only.execution_id, PATIENCE_MS)).status);
    expect((await session.sh('wc -l < /tmp/d')).stdout).toBe('1\n');
    await session.delete();
  });

  test('R24 gives a hundred equal requests before it and a hundred after it one execution and one answer', async () => {
    const session = await stack().open();
    const headers = { 'idempotency-key': 'hundred' };
    const send = (text: string) =>
      stack().api.request('POST', `${session.path}/execute`, {
        headers,
        body: { tool_name: 'shell', arguments: { command: text } },
      });
    const hundred = () => Promise.all(Array.from({ length: 100 }, () => send('echo ran | tee -a /tmp/n')));
    const before = await hundred();
    await stack().restartEdge();
    const after = await hundred();
    expect([...before, ...after].map(({ status }) => status)).toEqual(Array(200).fill(200));
    expect(new Set([...before, ...after].map(({ text }) => text)).size).toBe(1);
    expect((await send('echo other')).status).toBe(422);
    await until('the session runs calls again', PATIENCE_MS, async () =>
      session.sh('wc -l < /tmp/n').then(
        ({ stdout }) => (stdout === '1\n' ? true : undefined),
        () => undefined,
      ),
    );
    await session.delete();
  });

  test('R24 lets a stream continue where it was cut', async () => {
    const session = await stack().open();
    const loop = 'for i in $(seq 1 30); do echo $i; sleep 0.1; done';
    const stream = await session.stream('shell', { command: loop });
    const events: SeenEvent[] = [];
    const reading = (async () => {
      for await (const seen of stream) events.push(seen);
    })().catch((error: unknown) => error);
    await until('some lines', PATIENCE_MS, () => (events.length > 4 ? true : undefined));
    await stack().restartEdge();
    await reading;
    const last = events.at(-1);
    if (last === undefined) throw new Error('lines were expected');
    const after = await (await session.events(last.cursor.executionId, last.id)).collect();
    const whole = collected([...events, ...after.events]);
    expect(whole.stdout).toBe(Array.from({ length: 30 }, (_, index) => `${index + 1}\n`).join(''));
    expect(whole.end?.status).toBe('succeeded');
    await session.delete();
  });
});

describe('R55 tokens of an issuer whose clock differs', () => {
  const nowS = () => Math.floor(Date.now() / 1000);
  const statusOf = async (claims: Record<string, unknown>): Promise<number> => {
    const client = await stack().clientWith({ claims });
    const answer = await client.request('GET', '/v1/sessions');
    if (answer.status !== 200) {
      expect(answer.headers.get('content-type')).toContain('application/problem+json');
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer /);
    }
    return answer.status;
  };

  test.each([
    ['issued 20 s ahead, with nbf', () => ({ iat: nowS() + 20, nbf: nowS() + 20 })],
    ['issued 20 s ahead', () => ({ iat: nowS() + 20 })],
    ['expired 20 s ago', () => ({ exp: nowS() - 20 })],
    ['valid from 20 s ahead', () => ({ nbf: nowS() + 20 })],
  ])('R55 %s are accepted', async (_name, claims) => {
    expect(await statusOf(claims())).toBe(200);
  });

  test.each([
    ['issued 600 s ahead, with nbf', () => ({ iat: nowS() + 600, nbf: nowS() + 600 })],
    ['issued 600 s ahead', () => ({ iat: nowS() + 600 })],
    ['expired 600 s ago', () => ({ exp: nowS() - 600 })],
    ['just beyond the leeway', () => ({ exp: nowS() - LEEWAY_S.atMost - 5 })],
    ['without an end', () => ({ exp: undefined })],
    ['whose end is text', () => ({ exp: '9999999999' })],
    ['whose start is text', () => ({ nbf: 'now' })],
    ['whose end is negative', () => ({ exp: -1 })],
    ['whose end is null', () => ({ exp: null })],
  ])('R55 %s are refused with 401', async (_name, claims) => {
    expect(await statusOf(claims())).toBe(401);
  });

  test.each([1e15, 1e308, 4_102_444_800.5])('R55 whose end is %d are judged, not a fault', async (exp) => {
    expect([200, 401]).toContain(await statusOf({ exp }));
  });
});
