/** Calls of one session do not mix, retries do not run twice, streams continue, deletion ends what runs. */
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { isTerminal } from '../../shared/lifecycle.ts';
import { MAX_QUEUED_EXECUTIONS } from '../../shared/limits.ts';
import { SessionSchema } from '../../shared/session.ts';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import { processesOfSandbox } from './leftovers.ts';
import { useSession, useStack } from './stack.ts';
import { pause, timed, until } from './until.ts';

const stack = useStack();
const numbers = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, index) => `${first + index}\n`).join('');

/** The refusal of a call that must be refused. */
async function refusalOf(call: Promise<unknown>): Promise<Refused> {
  const outcome = await call.then(
    (value) => value,
    (error: unknown) => error,
  );
  if (outcome instanceof Refused) return outcome;
  throw new Error(`a refusal was expected, not ${JSON.stringify(outcome)?.slice(0, 500)}`);
}

describe('R33 calls at once in one session', () => {
  const session = useSession(stack);

  test('R33 neither mix their output nor their state', async () => {
    const [a, b, d] = await Promise.all([
      session().sh('export K=a; cd /tmp; sleep 1; echo $K $PWD'),
      session().sh('export K=b; cd /; sleep 1; echo $K $PWD'),
      session().py('import time; q=1; time.sleep(1); q'),
    ]);
    expect([a.stdout, b.stdout, d.value]).toEqual(['a /tmp\n', 'b /\n', '1']);
  });

  test('R33 of different tools run beside each other, each with its own output, stop and end', async () => {
    // Each waits for what the other does, so neither can have ended before the other began.
    const [python, shell] = await Promise.all([
      session().py(
        `import os, time\nfor i in range(300):\n  print('p', i)\nopen('/tmp/from-python', 'w').close()\n` +
          `while not os.path.exists('/tmp/from-shell'): time.sleep(0.01)\nprint('p end')`,
      ),
      session().sh(
        'for i in $(seq 0 299); do echo s $i; done; touch /tmp/from-shell; ' +
          'until [ -e /tmp/from-python ]; do sleep 0.01; done; echo s end',
      ),
    ]);
    const lines = (letter: string) =>
      `${Array.from({ length: 300 }, (_, index) => `${letter} ${index}\n`).join('')}${letter} end\n`;
    expect([python.status, python.stdout]).toEqual(['succeeded', lines('p')]);
    expect([shell.status, shell.stdout]).toEqual(['succeeded', lines('s')]);

    const sleeping = await session().detach('python', { code: 'kept = 5\nimport time\ntime.sleep(60)' });
    const late = await session().sh('sleep 30', { timeoutMs: 500 });
    expect(late.status).toBe('timeout');
    expect((await session().execution(sleeping.execution_id)).status).toMatch(/granted|running/);
    await session().interrupt(sleeping.execution_id);
    expect((await session().ended(sleeping.execution_id, PATIENCE_MS)).status).toBe('interrupted');
    expect((await session().py('kept')).value).toBe('5');
  });

  test('R33 all get an answer of their own when there are fifty', async () => {
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        index % 2 === 0 ? session().sh(`echo ${index}`) : session().py(`print(${index})`),
      ),
    );
    expect(results.map(({ stdout }) => stdout)).toEqual(
      Array.from({ length: 50 }, (_, index) => `${index}\n`),
    );
    expect(new Set(results.map(({ execution_id: id }) => id)).size).toBe(50);
  });

  test('R33 run in the order in which they were accepted', async () => {
    const ids: string[] = [];
    for (let index = 0; index < 10; index += 1) {
      const call = await session().detach('shell', { command: `echo ${index} >> /tmp/order; sleep 0.05` });
      ids.push(call.execution_id);
    }
    for (const id of ids) expect((await session().ended(id, PATIENCE_MS)).status).toBe('succeeded');
    expect((await session().sh('cat /tmp/order')).stdout).toBe(numbers(0, 9));
  });

  test('R33 keep their output when a later call prints more', async () => {
    const first = await session().sh('printf ab');
    const silent = await session().sh(':');
    await session().sh('printf 0123456789; printf 0123456789 >&2');
    for (const [id, stdout] of [
      [first.execution_id, 'ab'],
      [silent.execution_id, ''],
    ] as const) {
      expect(await session().execution(id)).toMatchObject({ stdout, stderr: '' });
      const seen = await (await session().events(id)).collect();
      expect([seen.stdout, seen.stderr]).toEqual([stdout, '']);
    }
  });

  test('R33 beyond the queue are refused with a time to come back, and no accepted one is lost', async () => {
    const own = await stack().open();
    const holding = 'until [ -e go ]; do sleep 0.1; done';
    await own.detach('shell', { command: holding }, { timeoutMs: 2 * PATIENCE_MS });
    const calls = await Promise.all(
      Array.from({ length: MAX_QUEUED_EXECUTIONS + 16 }, () =>
        own
          .detach('shell', { command: 'echo ran' }, { timeoutMs: 2 * PATIENCE_MS })
          .catch((error: unknown) => error),
      ),
    );
    expect((await own.api.request('PUT', `${own.path}/files/go`, { body: '' })).status).toBe(201);
    const refused = calls.filter((call) => call instanceof Refused);
    expect(refused.length).toBeGreaterThan(0);
    for (const refusal of refused) {
      expect(refusal.status).toBe(429);
      expect(refusal.problem).toMatchObject({ code: 'queue_full', retryable: true });
      expect(Number(refusal.headers.get('retry-after'))).toBeGreaterThan(0);
    }
    expect(calls.length - refused.length).toBeGreaterThanOrEqual(MAX_QUEUED_EXECUTIONS);
    await until('all accepted calls end', PATIENCE_MS, async () => {
      const { executions } = await own.describe();
      return executions.queued + executions.running === 0 ? true : undefined;
    });
    expect((await own.describe()).executions.total).toBe(1 + calls.length - refused.length);
    await own.delete();
  });
});

describe('R37 a request that is sent again', () => {
  const command = 'echo x >> /tmp/n; sleep 1; wc -l < /tmp/n';

  test('R37 runs once: at the same time, later, and after the edge was restarted', async () => {
    const session = await stack().open();
    const key = randomBytes(8).toString('hex');
    const send = () => session.sh(command, { idempotencyKey: key });
    const atOnce = await Promise.all([send(), send()].map((call) => call.catch((error: unknown) => error)));
    const results: { execution_id: string; stdout: string }[] = [];
    for (const outcome of atOnce) {
      if (outcome instanceof Refused) expect(outcome.problem.code).toBe('idempotency_in_progress');
      else if (outcome instanceof Error) throw outcome;
    }
    results.push(await send());
    await stack().restartEdge();
    results.push(await send());
    expect(new Set(results.map(({ execution_id: id }) => id)).size).toBe(1);
    expect(results.map(({ stdout }) => stdout)).toEqual(['1\n', '1\n']);
    expect((await session.sh('wc -l < /tmp/n')).stdout).toBe('1\n');
    await session.delete();
  });

  test('R37 with another body under the same key is refused, and not run', async () => {
    const session = await stack().open();
    const first = await session.sh('echo one', { idempotencyKey: 'k1' });
    for (const call of [
      () => session.sh('touch /tmp/ran; echo two', { idempotencyKey: 'k1' }),
      () => session.py("open('/tmp/ran', 'w')", { idempotencyKey: 'k1' }),
      () => session.sh('echo one', { idempotencyKey: 'k1', timeoutMs: 1234 }),
    ]) {
      const refusal = await refusalOf(call());
      expect([409, 422]).toContain(refusal.status);
      expect(refusal.problem.code).toBe('idempotency_conflict');
    }
    expect((await session.sh('test -e /tmp/ran; echo $?')).stdout).toBe('1\n');
    expect((await session.sh('echo one', { idempotencyKey: 'k1' })).execution_id).toBe(first.execution_id);
    await session.delete();
  });

  test('R37 under the same key in another session or by another tenant is a request of its own', async () => {
    const other = await stack().clientWith({ claims: { tenant: 'another' } });
    const sessions = [await stack().open(), await stack().open(), await other.open()];
    const results = await Promise.all(
      sessions.map((session) => session.sh(command, { idempotencyKey: 'k1' })),
    );
    expect(results.map(({ stdout }) => stdout)).toEqual(['1\n', '1\n', '1\n']);
    expect(new Set(results.map(({ execution_id: id }) => id)).size).toBe(3);
    await Promise.all(sessions.map((session) => session.delete()));
  });

  test('R37 streamed, detached and read as one answer is still one execution', async () => {
    const session = await stack().open();
    const options = { idempotencyKey: 'mixed' };
    const first = await session.sh(command, options);
    const again = await session.sh(command, options);
    expect(again).toEqual(first);
    const failing = await session.sh('exit 3', { idempotencyKey: 'fails' });
    expect((await session.sh('exit 3', { idempotencyKey: 'fails' })).execution_id).toBe(failing.execution_id);
    await session.delete();
  });

  test('R37 to open a session opens one', async () => {
    const headers = { 'idempotency-key': randomBytes(8).toString('hex') };
    const opened = await Promise.all(
      [1, 2].map(() =>
        stack()
          .api.open({}, headers)
          .catch((error: unknown) => error),
      ),
    );
    const later = await stack().api.open({}, headers);
    for (const outcome of opened) {
      if (outcome instanceof Refused) expect(outcome.problem.code).toBe('idempotency_in_progress');
      else if (outcome instanceof Error) throw outcome;
      else expect(outcome).toMatchObject({ id: later.id });
    }
    const refusal = await refusalOf(stack().api.open({ idle_timeout_s: 77 }, headers));
    expect(refusal.problem.code).toBe('idempotency_conflict');
    await later.delete();
  });
});

describe.concurrent('R46 the idle time of a session', () => {
  const idle = { idle_timeout_s: 10 };

  test('R46 counts from the end of what ran, and then nothing of it is left', async () => {
    const own = await stack().open(idle);
    const { sandbox_id: sandboxId } = await own.describe();
    expect((await own.sh('sleep 12; echo fin', { timeoutMs: 30_000 })).stdout).toBe('fin\n');
    expect((await own.sh('echo here')).stdout).toBe('here\n');
    // To look at a session is not to use it.
    await until('the session has ended', PATIENCE_MS, () =>
      own.describe().then(
        ({ state }) => (state === 'running' ? undefined : true),
        (error: unknown) => error instanceof Refused || Promise.reject(error),
      ),
    );
    const refused = await refusalOf(own.sh('echo x'));
    expect([404, 410]).toContain(refused.status);
    await until('nothing of the sandbox is left', PATIENCE_MS, async () =>
      (await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '')).length === 0 ? true : undefined,
    );
  });

  test('R46 does not count a pause, and a reader does not shorten it', async () => {
    const own = await stack().open(idle);
    const first = await own.sh('echo first');
    const readers = await Promise.all([own.events(first.execution_id), own.events(first.execution_id)]);
    for (const reader of readers)
      for await (const { event } of reader) expect(event.event).toBeTypeOf('string');
    const states = [];
    for (const act of ['pause', 'resume']) {
      const answer = await own.api.json(SessionSchema, 'POST', `${own.path}/${act}`);
      states.push(answer.value.state);
      if (act === 'pause') await pause(12_000);
    }
    expect(states).toEqual(['paused', 'running']);
    expect((await own.sh('echo back')).stdout).toBe('back\n');
    await own.delete();
  });
});

describe('R47 a stream that is cut', () => {
  const session = useSession(stack);
  const loop = (file: string, last: number, delay: string) =>
    `echo r >> ${file}; for i in $(seq 1 ${last}); do echo $i; sleep ${delay}; done`;

  test('R47 after its third event continues with the next byte, and nothing runs again', async () => {
    const stream = await session().stream('shell', { command: loop('/tmp/runs', 40, '0.1') });
    let count = 0;
    const before = await stream.collect(() => ++count === 3);
    const last = before.events.at(-1);
    if (last === undefined) throw new Error('three events were expected');
    await pause(1_000);
    const after = await (await session().events(last.cursor.executionId, last.id)).collect();
    const whole = collected([...before.events, ...after.events]);
    expect(whole.stdout).toBe(numbers(1, 40));
    expect(whole.gaps).toEqual([]);
    expect(whole.end).toMatchObject({ status: 'succeeded', stdout_bytes: whole.stdout.length });
    expect((await session().sh('wc -l < /tmp/runs')).stdout).toBe('1\n');
  });

  test('R47 again and again gives every byte once', async () => {
    const command = `${loop('/tmp/often', 20, '0.05')}; echo over >&2`;
    const started = await session().detach('shell', { command });
    const events: SeenEvent[] = [];
    await until('the last event', PATIENCE_MS, async () => {
      const stream = await session().events(started.execution_id, events.at(-1)?.id);
      let taken = 0;
      const part = await stream.collect(() => ++taken === 2);
      events.push(...part.events);
      return part.end === undefined ? undefined : true;
    });
    const whole = collected(events);
    expect([whole.stdout, whole.stderr]).toEqual([numbers(1, 20), 'over\n']);
    expect((await session().sh('wc -l < /tmp/often')).stdout).toBe('1\n');
  });

  test('R47 can be read from the beginning by several readers, during and after the run', async () => {
    const started = await session().detach('shell', { command: loop('/tmp/several', 10, '0.05') });
    const readers = await Promise.all([1, 2, 3].map(() => session().events(started.execution_id)));
    const seen = await Promise.all(readers.map((reader) => reader.collect()));
    const later = await (await session().events(started.execution_id)).collect();
    for (const one of [...seen, later]) {
      expect(one.stdout).toBe(numbers(1, 10));
      expect(one.end?.status).toBe('succeeded');
    }
    const afterTheEnd = await (
      await session().events(started.execution_id, later.events.at(-1)?.id)
    ).collect();
    expect(afterTheEnd.events).toEqual([]);
  });

  test('R47 with its client gone for good leaves a result that can be read', async () => {
    const stream = await session().stream('shell', { command: 'echo first; sleep 1; echo last' });
    const before = await stream.collect(({ event }) => event.event === 'stdout');
    const id = before.events[0]?.cursor.executionId ?? '';
    const ended = await session().ended(id, PATIENCE_MS);
    expect(ended).toMatchObject({ status: 'succeeded', stdout: 'first\nlast\n' });
  });

  test('R47 begins with an event that carries an id, before any result', async () => {
    const seen = await (await session().stream('shell', { command: 'echo x' })).collect();
    expect(seen.events[0]?.event.event).toBe('started');
    expect(seen.events[0]?.id).toMatch(/^exe_/);
    expect(seen.events.at(-1)?.event.event).toBe('end');
    expect(new Set(seen.events.map(({ id }) => id)).size).toBe(seen.events.length);
  });

  test('R47 too old to be continued says which bytes are missing', async () => {
    const megabytes = 16;
    const command = `head -c ${megabytes * 1_048_576} /dev/zero | tr '\\0' z`;
    const result = await session().sh(command, { timeoutMs: PATIENCE_MS });
    const seen = await (await session().events(result.execution_id)).collect();
    const missing = seen.gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    expect(seen.stdoutBytes.length + missing).toBe(megabytes * 1_048_576);
    expect(seen.end?.stdout_bytes).toBe(megabytes * 1_048_576);
  });

  test.each(['nonsense', 'exe_AAAAAAAAAAAAAAAAAAAAAA:0:0:0', '1', '\u00e9'])(
    'R47 after an event that never was (%s) is refused, not started over',
    async (lastEventId) => {
      const result = await session().sh('echo x');
      const refusal = await refusalOf(session().events(result.execution_id, lastEventId));
      expect(['invalid_request', 'not_found']).toContain(refusal.problem.code);
    },
  );
});

describe('R50 deleting a session with a call in flight', () => {
  test('R50 ends the call, and the session is gone', async () => {
    const session = await stack().open();
    const { sandbox_id: sandboxId } = await session.describe();
    const stream = await session.stream('shell', { command: 'echo begin; sleep 60' }, { timeoutMs: 90_000 });
    const events: SeenEvent[] = [];
    const reading = (async () => {
      for await (const seen of stream) events.push(seen);
    })();
    await until('the program prints', PATIENCE_MS, () =>
      events.find(({ event }) => event.event === 'stdout'),
    );
    const waiting = session.sh('echo queued').catch((error: unknown) => error);

    const deleted = await timed(session.delete());
    expect(deleted.elapsedMs).toBeLessThan(STUCK_MS);
    const ended = await timed(reading);
    expect(ended.elapsedMs).toBeLessThan(STUCK_MS);
    const seen = collected(events);
    expect(seen.stdout).toBe('begin\n');
    expect(seen.end).toMatchObject({ exit_code: null, reason: 'session_deleted' });
    expect(seen.end?.status).not.toBe('succeeded');
    expect(isTerminal(seen.end?.status ?? 'queued')).toBe(true);

    const queued = await waiting;
    if (queued instanceof Refused) expect([404, 410]).toContain(queued.status);
    else expect(queued).toMatchObject({ status: 'cancelled', stdout: '' });

    const again = await stack().api.request('DELETE', session.path);
    expect([204, 404]).toContain(again.status);
    for (const call of [() => session.sh('echo x'), () => session.describe()]) {
      expect([404, 410]).toContain((await refusalOf(call())).status);
    }
    await until('nothing of the sandbox runs', STUCK_MS, async () =>
      (await processesOfSandbox(stack().stack.stateDir, sandboxId ?? '')).length === 0 ? true : undefined,
    );
  });

  test.each([
    ['one that waits for its answer', 'sleep 60'],
    ['one that ignores signals', "trap '' INT TERM HUP; sleep 60 & wait; sleep 60"],
    ['one that prints without end', 'yes'],
  ])('R50 answers %s', async (_name, command) => {
    const session = await stack().open();
    const call = session.sh(command, { timeoutMs: 60_000 }).catch((error: unknown) => error);
    await until('the call runs', PATIENCE_MS, async () =>
      (await session.describe()).executions.running === 1 ? true : undefined,
    );
    expect((await timed(session.delete())).elapsedMs).toBeLessThan(STUCK_MS);
    const answer = await timed(call);
    expect(answer.elapsedMs).toBeLessThan(STUCK_MS);
    if (answer.value instanceof Refused) expect(answer.value.status).toBe(410);
    else expect(answer.value).toMatchObject({ reason: 'session_deleted', exit_code: null });
  });

  test('R50 twice at once answers both', async () => {
    const session = await stack().open();
    const answers = await Promise.all([1, 2].map(() => stack().api.request('DELETE', session.path)));
    for (const { status } of answers) expect([200, 202, 204, 404]).toContain(status);
    expect(answers.some(({ status }) => status < 300)).toBe(true);
  });
});
