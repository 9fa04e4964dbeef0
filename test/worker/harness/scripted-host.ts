import { EventSourceParserStream } from 'eventsource-parser/stream';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { concatBytes } from '../../../shared/encoding.ts';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { echo, type HostDouble, type Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiOptions, api } from './api.ts';
import { eventually } from './eventually.ts';
import { connectFakeHost } from './fake-host.ts';
import { allKept } from './held-session.ts';

export let host: HostDouble;
export const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
export const bob = () => tokenOf({ claims: { tenant: 'acme', sub: 'bob' } });
export const mallory = () => tokenOf({ claims: { tenant: 'globex', sub: 'alice' } });

/** Of the held executions those that have said so. */
const begun = new Set<string>();

/** `hold` runs until it is interrupted, `cat` gives back its input, anything else is echoed. */
const script: Script = async (execution, session) => {
  switch (execution.arguments.command) {
    case 'hold':
      execution.started();
      await execution.write('stdout', 'begun\n');
      begun.add(execution.id);
      await execution.interrupted;
      return execution.finish({ status: 'interrupted', exit_code: null });
    case 'cat':
      execution.started();
      await execution.stdinClosed;
      await execution.write('stdout', concatBytes(execution.stdin));
      return execution.finish();
    case 'fail':
      execution.started();
      await execution.write('stderr', 'no\n');
      return execution.finish({ status: 'failed', exit_code: 3 });
    default:
      return echo(execution, session);
  }
};

export function useScriptedHost(): void {
  beforeAll(async () => {
    host = await connectFakeHost({ script });
  });
  afterEach(() => {
    expect(host.failures).toEqual([]);
  });
  afterAll(() => {
    host.close();
  });
}

export async function open(token: string, options: ApiOptions = {}): Promise<string> {
  const answer = await api('POST', '/v1/sessions', { token, body: {}, ...options });
  expect(answer.status).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

export function shell(command: string, more: object = {}) {
  return { tool_name: 'shell', arguments: { command }, ...more };
}

export async function run(
  token: string,
  sessionId: string,
  command: string,
  more: object = {},
): Promise<Execution> {
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
    token,
    body: shell(command, more),
  });
  expect(answer.status, answer.text).toBeLessThan(300);
  return ExecutionSchema.parse(answer.json);
}

/** Runs, and its session has kept what it said so far: by itself nothing changes from here on. */
export async function hold(token: string, sessionId: string): Promise<Execution> {
  const execution = await run(token, sessionId, 'hold', { detach: true });
  await eventually(() => expect(begun).toContain(execution.execution_id));
  await allKept(host, { id: sessionId });
  return execution;
}

export async function eventsOf(response: Response) {
  const events: { id: string | undefined; event: string | undefined; data: unknown }[] = [];
  const stream = (response.body ?? new Response('').body ?? new ReadableStream())
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream());
  for await (const { id, event, data } of stream) events.push({ id, event, data: JSON.parse(data) });
  return events;
}
