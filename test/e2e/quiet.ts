/** Calls that say nothing for a long time, and viewers that take nothing for one: by each way that there is to watch. */
import { hash } from 'node:crypto';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { expect } from 'vitest';
import { SSE_HEARTBEAT_MS } from '../../shared/limits.ts';
import { readReceipt } from '../../shared/receipt-verify.ts';
import { hearEvents } from './event-socket.ts';
import { collected, type SeenEvent } from './event-stream.ts';
import type { TestStack } from './stack.ts';
import { pause, timed } from './until.ts';

/** With what a busy machine may add, and less than where one sign of life is left out. */
const MAX_SILENCE_MS = 2 * SSE_HEARTBEAT_MS - 1_000;
const CALL_GRACE_MS = 120_000;
/** More than all that lies between a program and a viewer holds. */
const LINES = 5_000_000;

const quietly = (quietMs: number) => ({
  call: { command: `sleep ${quietMs / 1_000}; echo end` },
  options: { timeoutMs: quietMs + CALL_GRACE_MS },
});

function expectSignsOfLife(activityMs: readonly number[], maxSilenceMs: number): void {
  const silences = activityMs.slice(1).map((atMs, index) => atMs - (activityMs[index] ?? 0));
  expect(Math.max(...silences)).toBeLessThan(maxSilenceMs);
}

export async function isStreamed(
  stack: TestStack,
  quietMs: number,
  maxSilenceMs = MAX_SILENCE_MS,
): Promise<void> {
  const session = await stack.open();
  const { call, options } = quietly(quietMs);
  const stream = await session.stream('shell', call, options);
  const seen = await stream.collect();
  expect(seen.stdout).toBe('end\n');
  expect(seen.end).toMatchObject({ status: 'succeeded', exit_code: 0 });
  expectSignsOfLife(stream.activityMs, maxSilenceMs);
  expect(stream.comments).toBeGreaterThan(5);
  expect(seen.events.map(({ event }) => event.event)).toEqual(['started', 'stdout', 'end']);
  await session.delete();
}

export async function isHeardOnSocket(
  stack: TestStack,
  quietMs: number,
  maxSilenceMs = MAX_SILENCE_MS,
): Promise<void> {
  const session = await stack.open();
  const { call, options } = quietly(quietMs);
  const started = await session.detach('shell', call, options);
  const { events, activityMs, code } = await hearEvents(session, started.execution_id);
  expect(code).toBe(1000);
  expect(events.map(({ event }) => event)).toEqual(['started', 'stdout', 'end']);
  expect(events[1]).toMatchObject({ event: 'stdout', text: 'end\n' });
  expectSignsOfLife(activityMs, maxSilenceMs);
  expect(activityMs.length - 1 - events.length).toBeGreaterThan(5);
  await session.delete();
}

export async function isAnsweredOverMcp(stack: TestStack, quietMs: number): Promise<void> {
  const session = await stack.open();
  const { call, options } = quietly(quietMs);
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(
    new StreamableHTTPClientTransport(new URL('/mcp', stack.api.url), {
      requestInit: { headers: { Authorization: `Bearer ${stack.api.token}` } },
    }),
  );
  const answered = await client.callTool(
    { name: 'shell', arguments: { ...call, session_id: session.id, timeout_ms: options.timeoutMs } },
    { timeout: options.timeoutMs },
  );
  expect(answered.isError ?? false).toBe(false);
  expect(JSON.stringify(answered.content)).toContain('end');
  await client.close();
  const { executions } = await session.executions();
  expect(executions.map(({ status }) => status)).toEqual(['succeeded']);
  await session.delete();
}

/**
 * The viewer takes nothing for so long, while the program says more than is held for it. What it finds when it looks again is
 * all of it, or a place that says what is missing, which the stored output has.
 */
export async function staysWholeForItsViewer(stack: TestStack, quietMs: number): Promise<void> {
  const session = await stack.open();
  const stream = await session.stream('shell', { command: `seq ${LINES}` }, quietly(quietMs).options);
  const events: SeenEvent[] = [];
  try {
    for await (const seen of stream) {
      events.push(seen);
      if (seen.event.event === 'stdout' && events.length < 5) await pause(quietMs / 3);
    }
  } catch {
    // Let go in between: it comes back as any viewer does.
  }
  const id = startedIn(events);
  while (events.at(-1)?.event.event !== 'end') {
    for await (const seen of await session.events(id, events.at(-1)?.id)) events.push(seen);
  }
  const { stdoutBytes, gaps, end } = collected(events);
  expect(end).toMatchObject({ status: 'succeeded', exit_code: 0 });
  const answer = await session.api.fetch('GET', `${session.path}/executions/${id}/output/stdout`);
  const whole = Buffer.from(await answer.arrayBuffer());
  const read = readReceipt(await session.receipt(id));
  if (!read.ok) throw new Error(read.detail);
  expect(read.value.receipt.stdout).toMatchObject({ bytes: whole.length, sha256: hash('sha256', whole) });
  const seen: Buffer[] = [];
  let at = 0;
  for (const { from, to } of gaps) {
    seen.push(whole.subarray(at, from));
    at = to;
  }
  seen.push(whole.subarray(at));
  expect(Buffer.concat(seen).equals(stdoutBytes), 'what is seen, but for the gaps').toBe(true);
  await session.delete();
}

function startedIn(events: readonly SeenEvent[]): string {
  const [first] = events;
  if (first?.event.event !== 'started') throw new Error('the first event is not started');
  return first.event.execution_id;
}

/** Nothing goes over the links meanwhile but what keeps them. */
export async function linkWorksAtOnceAfter(
  stack: TestStack,
  quietMs: number,
  withinMs: number,
): Promise<void> {
  const session = await stack.open({ idle_timeout_s: 3_600 });
  await session.sh('export KEPT=1');
  await pause(quietMs);
  const { value: result, elapsedMs } = await timed(session.sh('echo $KEPT'));
  expect(result).toMatchObject({ stdout: '1\n', state_lost: false });
  expect(elapsedMs).toBeLessThan(withinMs);
  await session.delete();
}
