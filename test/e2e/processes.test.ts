/** Background processes through the whole road. */
import { createParser } from 'eventsource-parser';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import {
  LogEventSchema,
  MAX_PROCESSES,
  PROCESS_LOG_BYTES,
  type Process,
  ProcessListSchema,
  ProcessSchema,
  WaitedSchema,
} from '../../shared/program.ts';
import { PATIENCE_MS } from '../patience.ts';
import type { SessionClient } from './client.ts';
import { useSession, useStack } from './stack.ts';
import { until } from './until.ts';

const TIMEOUT_MS = 180_000;
const OutputSchema = z.object({ text: z.string() });
const LogsSchema = z.object({ events: z.array(LogEventSchema), next_after: z.int() });

const stack = useStack();
const session = useSession(stack);

async function start(body: object, client: SessionClient = session()): Promise<Process> {
  return (await client.api.json(ProcessSchema, 'POST', `${client.path}/processes`, { body })).value;
}

const pathOf = ({ process_id }: Process): string => `${session().path}/processes/${process_id}`;

async function wait(process: Process, body: object) {
  return (await stack().api.json(WaitedSchema, 'POST', `${pathOf(process)}/wait`, { body })).value;
}

async function logs(process: Process, query = '') {
  return (await stack().api.json(LogsSchema, 'GET', `${pathOf(process)}/logs${query}`)).value;
}

async function stop(process: Process, query = ''): Promise<Process> {
  return (await stack().api.json(ProcessSchema, 'DELETE', `${pathOf(process)}${query}`)).value;
}

function textOf(events: z.infer<typeof LogsSchema>['events'], stream: 'stdout' | 'stderr'): string {
  return events
    .map((event) => (event.type === 'output' && event.stream === stream ? (event.text ?? '') : ''))
    .join('');
}

/** The output events of a stream that has ended. */
function eventsIn(text: string): { id: string | undefined; text: string }[] {
  const events: { id: string | undefined; text: string }[] = [];
  const parser = createParser({
    onEvent: ({ event, id, data }) => {
      if (event === 'output') events.push({ id, text: OutputSchema.parse(JSON.parse(data)).text });
    },
  });
  parser.feed(text);
  return events;
}

describe('a background process', { timeout: TIMEOUT_MS }, () => {
  test('that is a shell with an open input takes commands until its input ends', async () => {
    const shell = await start({ command: 'bash', stdin: true });
    expect(shell.input_at).toBeUndefined();
    const write = (body: object) =>
      stack().api.json(ProcessSchema, 'POST', `${pathOf(shell)}/stdin`, { body });
    await write({ data: 'n=6; echo begun\n' });
    expect(await wait(shell, { line: 'begun' })).toMatchObject({ reached: true });
    const { value } = await write({
      data: Buffer.from('exit $((n * 7))').toString('base64'),
      encoding: 'base64',
      eof: true,
    });
    expect(value.input_at).toBe('begun\n'.length);
    expect(await wait(shell, {})).toMatchObject({ process: { exit_code: 42 } });
    const late = await stack().api.request('POST', `${pathOf(shell)}/stdin`, { body: { data: 'x' } });
    expect(late.status).toBe(409);
  });

  test('runs beside calls, and its end and both streams are told exactly', async () => {
    const process = await start({
      command:
        'echo out; echo err >&2; echo "$PWD $COLOUR"; read -r line; until test -e go; do sleep 0.05; done; exit 3',
      cwd: '/tmp',
      env: { COLOUR: 'grün' },
    });
    expect(process).toMatchObject({ state: 'running', cwd: '/tmp', exit_code: null });
    expect((await session().sh('touch /tmp/go')).exit_code).toBe(0);
    const waited = await wait(process, {});
    expect(waited).toMatchObject({ reached: true, process: { state: 'exited', exit_code: 3, signal: null } });
    const { events, next_after } = await logs(process);
    expect(textOf(events, 'stdout')).toBe('out\n/tmp grün\n');
    expect(textOf(events, 'stderr')).toBe('err\n');
    expect(events.at(-1)).toEqual({ type: 'exit', exit_code: 3, signal: null });
    expect(next_after).toBe(waited.process.log_bytes);
    expect((await logs(process, `?after=${next_after}`)).events).toEqual([events.at(-1)]);
    expect(textOf((await logs(process, '?stream=stderr')).events, 'stdout')).toBe('');
  });

  test('is waited for until it writes a line, or until a port answers', async () => {
    const process = await start({
      command: 'sleep 0.3; echo "Serving it"; exec python3 -u -m http.server 8123',
    });
    expect(await wait(process, { line: 'Serving' })).toMatchObject({ reached: true, line: 'Serving it' });
    expect(await wait(process, { port: 8123 })).toMatchObject({ reached: true });
    const fetched = await session().sh(
      'python3 -c "import urllib.request as u; print(u.urlopen(\'http://127.0.0.1:8123\').status)"',
    );
    expect(fetched.stdout).toBe('200\n');
    expect(await wait(process, { line: 'never', timeout_ms: 200 })).toMatchObject({
      reached: false,
      line: null,
    });
    expect(await wait(process, { port: 9, timeout_ms: 200 })).toMatchObject({ reached: false });
    expect(await stop(process)).toMatchObject({ state: 'exited', signal: 'SIGTERM' });
  });

  test('goes on in a session that nobody calls, whose sandbox would be frozen without it', async () => {
    const process = await start({ command: 'for i in $(seq 40); do echo "tick $i"; sleep 0.1; done' });
    expect(await wait(process, { line: 'tick 40' })).toMatchObject({ reached: true, line: 'tick 40' });
  });

  test('is ended with everything that it started with everything that it started', async () => {
    const process = await start({
      command:
        'trap "" TERM; (trap "" TERM; while :; do date +%s%N > /workspace/tick; sleep 0.1; done) & wait',
    });
    const tick = async () => (await session().sh('cat /workspace/tick 2>/dev/null')).stdout;
    const first = await until('it began', PATIENCE_MS, async () => (await tick()) || undefined);
    await until('it goes on', PATIENCE_MS, async () => ((await tick()) > first ? true : undefined));
    expect(await stop(process, '?grace_ms=100')).toMatchObject({ state: 'exited', signal: 'SIGKILL' });
    const last = await tick();
    expect((await session().sh('sleep 0.5; cat tick')).stdout).toBe(last);
  });

  test('is followed as events, and after a cut from where the reader was', async () => {
    const process = await start({ command: 'echo one; until test -e on; do sleep 0.05; done; echo two' });
    await wait(process, { line: 'one' });
    await session().sh('touch on');
    const headers = { accept: 'text/event-stream' };
    const whole = await stack().api.request('GET', `${pathOf(process)}/logs`, { headers });
    expect(whole.headers.get('content-type')).toBe('text/event-stream');
    const events = eventsIn(whole.text);
    expect(events.map(({ text }) => text).join('')).toBe('one\ntwo\n');
    expect(events.at(-1)?.id).toBe('8');
    expect(whole.text).toContain('event: exit\ndata: {"exit_code":0,"signal":null}');
    const rest = await stack().api.request('GET', `${pathOf(process)}/logs`, {
      headers: { ...headers, 'last-event-id': '4' },
    });
    expect(eventsIn(rest.text)).toEqual([{ id: '8', text: 'two\n' }]);
  });

  test('keeps the last of a long log, names what is gone, and gives bytes that are no text as base64', async () => {
    const process = await start({
      command: "head -c 3000000 /dev/zero | tr '\\0' z; printf 'end\\n' >&2; sleep 0.2; printf '\\377\\376'",
    });
    const waited = await wait(process, {});
    expect(waited.process.log_bytes).toBe(3_000_006);
    expect(waited.process.log_start).toBe(3_000_006 - PROCESS_LOG_BYTES);
    const { events } = await logs(process, '?after=10');
    expect(events[0]).toEqual({ type: 'gap', from: 10, to: waited.process.log_start });
    expect(events.at(-2)).toMatchObject({
      type: 'output',
      base64: Buffer.from([0xff, 0xfe]).toString('base64'),
    });
  });

  test('is one of a bounded number; what is wrong or not there is refused', async () => {
    const own = await stack().open();
    for (let count = 0; count < MAX_PROCESSES; count += 1) await start({ command: 'sleep 1000' }, own);
    await expect(start({ command: 'true' }, own)).rejects.toMatchObject({
      status: 429,
      problem: { code: 'too_many_programs' },
    });
    const { value } = await stack().api.json(ProcessListSchema, 'GET', `${own.path}/processes`);
    expect(value.processes).toHaveLength(MAX_PROCESSES);
    await own.delete();
    await expect(start({ command: 'true', cwd: '/nowhere' })).rejects.toMatchObject({
      problem: { code: 'program_not_started' },
    });
    const missing = await stack().api.request('GET', `${session().path}/processes/prc_${'A'.repeat(22)}`);
    expect(missing.status).toBe(404);
    const both = { body: { line: 'x', port: 1 } };
    const process = await start({ command: 'true' });
    expect((await stack().api.request('POST', `${pathOf(process)}/wait`, both)).status).toBe(400);
    const reader = await stack().clientWith({ claims: { scope: 'sessions:read' } });
    const refused = await reader.request('POST', `${session().path}/processes`, {
      body: { command: 'true' },
    });
    expect(refused.status).toBe(403);
  });
});
