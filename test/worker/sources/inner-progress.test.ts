/** What an MCP server says of calls that nobody waits for directly: those of programs, and those that somebody else approved. */
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, request } from '../harness/api.ts';
import { EventReader } from '../harness/event-reader.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { connectClient, type Era } from '../mcp/clients.ts';
import { ready, scopes } from './http-sources.ts';
import { Internet, statelessServer } from './stand-ins.ts';

const TokenSchema = z.union([z.string(), z.number()]);
const SAID = { progress: 1, total: 2, message: 'step 1' };

let host: HostDouble;
let sessionId: string;
let running: ExecutionDouble[];
/** The server ends its call when somebody has heard of its progress. */
let heard: PromiseWithResolvers<void>;

beforeAll(async () => {
  host = await connectFakeHost({
    script: (execution) => {
      execution.started();
      running.push(execution);
    },
  });
  const created = await api('POST', '/v1/sessions', { token: await scopes(), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  serve();
  await ready({ name: 'slow', url: 'https://slow.example.com/mcp' });
  await ready({ name: 'asked', url: 'https://slow.example.com/mcp', approval: 'required' });
});
beforeEach(() => {
  running = [];
  heard = Promise.withResolvers();
  serve();
});
afterAll(() => {
  vi.restoreAllMocks();
  host.close();
});

function serve(): void {
  const internet = new Internet();
  internet.start();
  internet.host(
    'slow.example.com',
    statelessServer((server) => {
      server.registerTool(
        'work',
        { inputSchema: z.object({ again: z.boolean().optional() }) },
        async (_, { mcpReq }) => {
          const { progressToken } = mcpReq._meta ?? {};
          const params = { progressToken: TokenSchema.parse(progressToken), ...SAID };
          await mcpReq.notify({ method: 'notifications/progress', params });
          await heard.promise;
          return { content: [{ type: 'text', text: 'done' }] };
        },
      );
    }),
  );
}

async function program(): Promise<ExecutionDouble> {
  await host.until(() => running.length > 0);
  const [execution] = running;
  if (execution === undefined) throw new Error('not started');
  return execution;
}

const eventsOf = async (id: string) =>
  new EventReader(
    await request('GET', `/v1/sessions/${sessionId}/executions/${id}/events`, { token: await scopes() }),
  );

test('of a call that a program makes: its stream has it, under the name of the call', async () => {
  const body = { language: 'python', code: 'x', detach: true };
  const begun = await api('POST', `/v1/sessions/${sessionId}/programs`, { token: await scopes(), body });
  const { program_id } = ProgramSchema.parse(begun.json);
  const execution = await program();
  const stream = await eventsOf(program_id);
  await stream.until(({ data }) => data.event === 'started');
  execution.call(1, 'slow.work', {});
  const { data } = await stream.until((event) => event.data.event === 'progress');
  expect(data).toEqual({
    event: 'progress',
    id: expect.stringMatching(/^tcl_/),
    tool_name: 'slow.work',
    ...SAID,
  });
  heard.resolve();
  expect(await execution.answer(1)).toMatchObject({ call: 1 });
  await execution.finish();
  const all = await stream.toEnd();
  expect(all.map((event) => event.data.event)).toEqual(['started', 'progress', 'end']);
});

test.each<Era>(['2025-11-25', '2026-07-28'])(
  'of a call that a program makes: over MCP of %s it is progress of the program',
  async (era) => {
    const client = await connectClient(era, await scopes());
    const texts: unknown[] = [];
    const onprogress = ({ message }: { message?: string }) => {
      texts.push(message);
      heard.resolve();
    };
    const args = { session_id: sessionId, language: 'python', code: 'x' };
    const ended = client.callTool({ name: 'code', arguments: args }, { onprogress });
    const execution = await program();
    execution.call(1, 'slow.work', {});
    expect(await execution.answer(1)).toMatchObject({ call: 1 });
    await execution.finish();
    expect(await ended).toMatchObject({ structuredContent: { status: 'succeeded' } });
    expect(texts).toEqual(['[slow.work 1/2] step 1\n']);
    await client.close();
  },
);

async function approve(executionId: string): Promise<void> {
  const bob = await tokenOf({ claims: { tenant: 'acme', sub: 'bob', scope: ALL_SCOPES } });
  const options = { token: bob, body: { decision: 'approve' } };
  const decided = await api('POST', `/v1/executions/${executionId}/approval`, options);
  expect(decided.status, decided.text).toBe(200);
}

test('of a call that was approved: the stream of the call has it', async () => {
  const body = { tool_name: 'asked.work', arguments: {} };
  const asked = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await scopes(), body });
  const { execution_id } = ExecutionSchema.parse(asked.json);
  const stream = await eventsOf(execution_id);
  await stream.until(({ data }) => data.event === 'waiting');
  await approve(execution_id);
  const { data } = await stream.until((event) => event.data.event === 'progress');
  expect(data).toEqual({ event: 'progress', ...SAID });
  heard.resolve();
  const { data: last } = await stream.until((event) => event.data.event === 'end');
  expect(last).toMatchObject({ execution: { status: 'succeeded' } });
});

test('of a call that was approved: a model that comes back for it hears it over MCP', async () => {
  const client = await connectClient('2026-07-28', await scopes());
  const request = { name: 'asked.work', arguments: { again: true, session_id: sessionId } };
  const first = await client.callTool(request);
  const [, executionId = ''] = /(exe_[A-Za-z0-9_-]+)/.exec(JSON.stringify(first.content)) ?? [];
  await approve(executionId);
  const told: unknown[] = [];
  const onprogress = (progress: unknown) => {
    told.push(progress);
    heard.resolve();
  };
  expect(await client.callTool(request, { onprogress })).toMatchObject({ isError: false });
  expect(told).toEqual([SAID]);
  await client.close();
});
