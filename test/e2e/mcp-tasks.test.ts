/** Tasks of MCP on the real stack, by the official client of the extension. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { resultFromTaskOutcome, type SerializedTaskReference } from '@modelcontextprotocol/ext-tasks/client';
import { expect, test } from 'vitest';
import * as z from 'zod';
import { TASKS_VERSION, taskSession } from '../fixtures/mcp-task-session.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const stack = useStack();
/** So long that a call with it is not over by itself while a test lasts. */
const ENDLESS_MS = 3_600_000;

const ResultSchema = z.object({
  isError: z.boolean(),
  structuredContent: z.looseObject({ status: z.string(), stdout: z.string(), session_ended: z.boolean() }),
});

async function connect() {
  const { url, token } = stack().api;
  const transport = () =>
    new StreamableHTTPClientTransport(new URL('/mcp', url), {
      requestInit: { headers: { Authorization: `Bearer ${token}` } },
    });
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: 'auto' } });
  await client.connect(transport());
  expect(client.getNegotiatedProtocolVersion()).toBe(TASKS_VERSION);
  const tasks = await taskSession(client, transport());
  return {
    tasks,
    leave: async () => {
      await tasks.close();
      await client.close();
    },
  };
}

function retried(error: unknown): undefined {
  if (!(error instanceof Refused) || !error.problem.retryable) throw error;
}

/** A program that runs until there is a file, and then says what was in it. */
const untilTold = (file: string) => `until [ -s ${file} ]; do sleep 0.1; done; cat ${file}`;

test.each([
  ['in a session', true],
  ['in a session of its own', false],
])(
  'a task %s outlives its client and a restart of the gateway',
  { timeout: 4 * PATIENCE_MS },
  async (_where, named) => {
    const session = named ? await stack().open() : undefined;
    const place: Record<string, string> = session === undefined ? {} : { session_id: session.id };
    // Nobody can write into a session that is the call's own: there the program ends after the restart by itself.
    const command = named ? untilTold('/workspace/told') : 'sleep 20; echo told';
    const first = await connect();
    const execution = await first.tasks.callTool('run_command', {
      ...place,
      command,
      timeout_ms: ENDLESS_MS,
    });
    if (execution.kind !== 'task') throw new Error('the call was answered directly');
    let reference: SerializedTaskReference | undefined;
    await execution.handoff((kept) => {
      reference = kept;
    });
    await first.leave();
    if (reference === undefined) throw new Error('there is no reference');

    await stack().restartEdge();

    const second = await connect();
    const taken = await second.tasks.resumeTask(reference);
    if (session !== undefined) {
      const told = { operation: 'write', path: 'told', content: 'told\n' };
      await until('the session runs calls again', PATIENCE_MS, () => session.file(told).catch(retried));
    }
    const { outcome } = await taken.settle();
    const result = ResultSchema.parse(resultFromTaskOutcome(outcome));
    expect(result).toMatchObject({
      isError: false,
      structuredContent: { status: 'succeeded', stdout: 'told\n', session_ended: !named },
    });
    await second.leave();
  },
);

test('a task is cancelled by the client of the extension, and its program ends', {
  timeout: 2 * PATIENCE_MS,
}, async () => {
  const session = await stack().open();
  const { tasks, leave } = await connect();
  const command = 'echo begun; sleep 3600';
  const execution = await tasks.callTool('run_command', {
    session_id: session.id,
    command,
    timeout_ms: ENDLESS_MS,
  });
  if (execution.kind !== 'task') throw new Error('the call was answered directly');
  await execution.cancel();
  const { outcome } = await execution.settle();
  expect(outcome.status).toBe('cancelled');
  // The shell of the session is the program's until that has ended.
  const direct = await tasks.callTool('run_command', {
    session_id: session.id,
    command: 'echo free',
  });
  const answered = ResultSchema.parse(resultFromTaskOutcome((await direct.settle()).outcome));
  expect(answered.structuredContent.stdout).toBe('free\n');
  await leave();
});
