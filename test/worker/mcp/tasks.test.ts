import { evictDurableObject, listDurableObjectIds } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { SessionSchema } from '../../../shared/session.ts';
import type { ExecutionDouble } from '../../fixtures/host-double/execution-double.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { sessionObject } from '../harness/sessions.ts';
import { call, type Message, modern, type RpcAnswer, rpc } from './rpc.ts';

const EXTENSION = 'io.modelcontextprotocol/tasks';
const DECLARED = { 'io.modelcontextprotocol/clientCapabilities': { extensions: { [EXTENSION]: {} } } };
const UNKNOWN = { code: -32_602, message: 'params.taskId: no such task, or not yours' };
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const DAY_MS = 86_400_000;

const ADD = {
  name: 'add',
  description: 'Adds',
  kind: 'code',
  language: 'python',
  code: 'def main(a, b):\n    return {"sum": a + b}\n',
  output_schema: { type: 'object', properties: { sum: { type: 'number' } }, required: ['sum'] },
};
const GUARDED = { ...ADD, name: 'guarded_add', approval: 'required' };

const TaskSchema = z.object({
  taskId: z.string(),
  status: z.string(),
  statusMessage: z.string(),
  createdAt: z.iso.datetime(),
  lastUpdatedAt: z.iso.datetime(),
  ttlMs: z.int(),
  pollIntervalMs: z.int(),
  resultType: z.string(),
  result: z.looseObject({ isError: z.boolean().optional() }).optional(),
});
type Task = z.infer<typeof TaskSchema>;

let host: HostDouble;
let sessionId: string;
/** Programs that run until a test lets them end. */
let held: ExecutionDouble[] = [];

const script: Script = async (execution) => {
  execution.started();
  const { command } = execution.arguments;
  if (command === 'short') {
    await execution.write('stdout', 'done\n');
    return execution.finish();
  }
  held.push(execution);
  await execution.interrupted;
  if (execution.isUnderWay) return execution.finish({ status: 'interrupted', exit_code: null });
};

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await tokenFor('alice'), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  for (const tool of [ADD, GUARDED]) {
    const put = await api('PUT', `/v1/tools/${tool.name}`, { token: await tokenFor('alice'), body: tool });
    expect(put.status, put.text).toBeLessThan(300);
  }
});
afterEach(async () => {
  for (const execution of held) if (execution.isUnderWay) await execution.finish();
  held = [];
  expect(host.failures).toEqual([]);
});
afterAll(() => host.close());

function tokenFor(sub: string, scope = ALL_SCOPES, tenant = 'acme'): Promise<string> {
  return tokenOf({ claims: { tenant, sub, scope } });
}

async function send(
  message: Record<string, unknown>,
  { token, meta = DECLARED }: { token?: string; meta?: Record<string, unknown> } = {},
): Promise<RpcAnswer> {
  const { body, headers } = modern(message, meta);
  return rpc(body, { headers, token: token ?? (await tokenFor('alice')) });
}

const request = (method: string, params: Record<string, unknown>) => ({
  jsonrpc: '2.0',
  id: 1,
  method,
  params,
});

async function ask(method: string, params: Record<string, unknown>, token?: string): Promise<Message> {
  const { messages } = await send(request(method, params), token === undefined ? {} : { token });
  const [answer] = messages;
  if (answer === undefined) throw new Error('no answer');
  return answer;
}

async function callTool(name: string, args: Record<string, unknown>): Promise<Message['result']> {
  const { messages } = await send({ ...call(1, name, args) });
  return messages.find(({ result }) => result !== undefined)?.result;
}

/** A call that is still running when it is answered. */
async function begun(name = 'shell', args: Record<string, unknown> = { command: 'hold' }): Promise<Task> {
  const task = TaskSchema.parse(await callTool(name, { session_id: sessionId, ...args }));
  expect(task).toMatchObject({ resultType: 'task', status: 'working' });
  return task;
}

async function get(taskId: string, token?: string): Promise<Task> {
  return TaskSchema.parse((await ask('tasks/get', { taskId }, token)).result);
}

function over(taskId: string): Promise<Task> {
  return eventually(async () => {
    const task = await get(taskId);
    expect(task.status).not.toBe('working');
    return task;
  });
}

function running(): ExecutionDouble {
  const [execution] = held.slice(-1);
  if (execution === undefined) throw new Error('nothing runs');
  return execution;
}

describe('the extension', () => {
  test('is announced to clients of its era', async () => {
    const { result } = await ask('server/discover', {});
    expect(result).toMatchObject({ capabilities: { tools: {}, extensions: { [EXTENSION]: {} } } });
  });

  test('is not there for clients before it', async () => {
    const initialize = {
      protocolVersion: '2025-11-25',
      capabilities: { extensions: { [EXTENSION]: {} } },
      clientInfo: { name: 'test', version: '1' },
    };
    const token = await tokenFor('alice');
    const { messages } = await rpc(request('initialize', initialize), { token });
    expect(messages[0]?.result?.capabilities).toEqual({ tools: {} });
    const answer = await rpc(request('tasks/get', { taskId: 'x' }), { token });
    expect(answer.messages[0]?.error?.code).toBe(-32_601);
  });

  test('leaves a client alone that does not declare it with the call', async () => {
    const { taskId } = await begun();
    const args = { command: 'hold', session_id: sessionId };
    const answered = send({ ...call(1, 'shell', args) }, { meta: {} });
    await host.until(() => held.length === 1);
    await running().finish();
    await host.until(() => held.length === 2);
    // The task of the same session before it: so long it has not been answered with one.
    expect((await over(taskId)).status).toBe('completed');
    await running().finish();
    const [result] = (await answered).messages.map((message) => message.result);
    expect(result).toMatchObject({ isError: false, resultType: 'complete' });
  });

  test.each(['tasks/get', 'tasks/cancel', 'tasks/update'])(
    'refuses %s of a client that does not declare it',
    async (method) => {
      const params = { taskId: 'x', inputResponses: {} };
      const { messages } = await send(request(method, params), { meta: {} });
      expect(messages[0]?.error).toMatchObject({
        code: -32_021,
        data: { requiredCapabilities: { extensions: { [EXTENSION]: {} } } },
      });
    },
  );

  test('refuses to tell such a client of tasks', async () => {
    const listen = request('subscriptions/listen', { notifications: { taskIds: ['x'] } });
    const answer = await send(listen, { meta: {} });
    expect(answer.status).toBe(400);
    expect(answer.messages).toMatchObject([{ id: 1, error: { code: -32_021 } }]);
  });
});

describe('a call of a client that knows tasks', () => {
  test('is answered directly where it ends within a moment', async () => {
    expect(await callTool('shell', { command: 'short', session_id: sessionId })).toMatchObject({
      resultType: 'complete',
      content: [{ type: 'text', text: 'done\n' }],
    });
  });

  test('that lasts becomes a task, which ends with what the call would have been answered with', async () => {
    const task = await begun();
    expect(task.ttlMs).toBeGreaterThanOrEqual(DAY_MS);
    expect(task.pollIntervalMs).toBeGreaterThan(0);
    expect(await get(task.taskId)).toMatchObject({
      resultType: 'complete',
      status: 'working',
      statusMessage: 'running',
      createdAt: task.createdAt,
    });
    await running().write('stdout', 'late\n');
    running().part('value', '<Figure>');
    running().part('result', PIXEL, { mime: 'image/png' });
    await running().finish();
    const ended = await over(task.taskId);
    expect(ended).toMatchObject({
      status: 'completed',
      result: {
        resultType: 'complete',
        isError: false,
        structuredContent: { status: 'succeeded', stdout: 'late\n', session_ended: false },
      },
    });
    expect(ended.result?.content).toContainEqual({ type: 'image', mimeType: 'image/png', data: PIXEL });
    expect(Date.parse(ended.lastUpdatedAt)).toBeGreaterThanOrEqual(Date.parse(task.createdAt));
    expect((await get(task.taskId)).result).toEqual(ended.result);
  });

  test('that fails is a task that is completed, with an error of the tool', async () => {
    const { taskId } = await begun();
    await running().finish({ status: 'failed', exit_code: 3 });
    expect(await over(taskId)).toMatchObject({
      status: 'completed',
      result: { isError: true, structuredContent: { status: 'failed', exit_code: 3 } },
    });
  });

  test('of a tool with data of its own gives that data', async () => {
    const { taskId } = await begun('add', { a: 1, b: 2 });
    running().part('value', '{"sum":3}');
    await running().finish();
    expect((await over(taskId)).result).toMatchObject({ isError: false, structuredContent: { sum: 3 } });
  });

  test('through call_tool gives the execution around it', async () => {
    const { taskId } = await begun('call_tool', { name: 'add', arguments: { a: 1, b: 2 } });
    running().part('value', '{"sum":3}');
    await running().finish();
    expect((await over(taskId)).result).toMatchObject({
      structuredContent: { tool_name: 'add', structured: { sum: 3 } },
    });
  });

  test('of a tool with data of its own that gives something else has failed', async () => {
    const { taskId } = await begun('add', { a: 1, b: 2 });
    running().part('value', '{"total":3}');
    await running().finish();
    expect((await over(taskId)).result).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: expect.stringContaining('OutputMismatch') }],
    });
  });

  test('with a key is the same task again, and later the same result', async () => {
    const args = { command: 'hold', idempotency_key: 'one' };
    const first = await begun('shell', args);
    const again = await begun('shell', args);
    expect(again.taskId).toBe(first.taskId);
    expect(held).toHaveLength(1);
    await running().finish();
    const { result } = await over(first.taskId);
    expect(await callTool('shell', { session_id: sessionId, ...args })).toMatchObject({
      structuredContent: result?.structuredContent,
    });
  });
});

describe('a task', () => {
  test('whose call has a session of its own can be read when that has ended', async () => {
    const begunTask = TaskSchema.parse(await callTool('shell', { command: 'hold' }));
    const { sid } = running().claims;
    await running().write('stdout', 'alone\n');
    await running().finish();
    const ended = await over(begunTask.taskId);
    expect(ended).toMatchObject({
      status: 'completed',
      result: { structuredContent: { session_id: sid, session_ended: true, stdout: 'alone\n' } },
    });
    await host.until(() => !host.sessions.has(String(sid)));
    await eventually(async () => {
      const read = await api('GET', `/v1/sessions/${sid}`, { token: await tokenFor('alice') });
      expect(read.status).toBe(404);
    });
    await evictDurableObject(sessionObject(String(sid)));
    expect((await get(begunTask.taskId)).result).toEqual(ended.result);
  });

  test('outlives the loss of its object', async () => {
    const { taskId } = await begun();
    await evictDurableObject(sessionObject(sessionId));
    expect((await get(taskId)).status).toBe('working');
    await running().write('stdout', 'after\n');
    await running().finish();
    await over(taskId);
    await evictDurableObject(sessionObject(sessionId));
    expect(await get(taskId)).toMatchObject({
      status: 'completed',
      result: { structuredContent: { stdout: 'after\n' } },
    });
  });

  test('is cancelled by its client, and its session lives on', async () => {
    const { taskId } = await begun();
    await running().write('stdout', 'so far\n');
    const cancelled = await ask('tasks/cancel', { taskId });
    expect(cancelled.error).toBeUndefined();
    expect(cancelled.result).toMatchObject({ resultType: 'complete' });
    const ended = await over(taskId);
    expect(ended).toMatchObject({ status: 'cancelled' });
    expect(ended).not.toHaveProperty('result');
    expect(ended.statusMessage).toContain('so far');
    // Once more does nothing more.
    expect((await ask('tasks/cancel', { taskId })).error).toBeUndefined();
    expect((await get(taskId)).status).toBe('cancelled');
    const after = await callTool('shell', { command: 'short', session_id: sessionId });
    expect(after).toMatchObject({ isError: false });
  });

  test('that waits in the queue is cancelled before it runs', async () => {
    await begun();
    const queued = await begun('shell', { command: 'hold too' });
    expect(held).toHaveLength(1);
    expect((await get(queued.taskId)).statusMessage).toBe('queued');
    await ask('tasks/cancel', { taskId: queued.taskId });
    expect((await over(queued.taskId)).status).toBe('cancelled');
  });

  test('takes answers to what it never asked, and ignores them', async () => {
    const { taskId } = await begun();
    const inputResponses = { name: { action: 'accept', content: { input: 'x' } } };
    const { result } = await ask('tasks/update', { taskId, inputResponses });
    expect(result).toMatchObject({ resultType: 'complete' });
    expect((await get(taskId)).status).toBe('working');
  });

  test('waits for an approval that its client cannot give, and goes on with it', async () => {
    const { taskId, statusMessage } = await begun('guarded_add', { a: 1, b: 2 });
    expect(statusMessage).toMatch(/^waits for an approval until \d{4}-/);
    expect((await get(taskId)).status).toBe('working');
    const bob = await tokenFor('bob');
    const listed = await api('GET', '/v1/approvals?status=waiting', { token: bob });
    const { approvals } = z
      .object({ approvals: z.array(z.object({ execution_id: z.string() })) })
      .parse(listed.json);
    const [waiting] = approvals;
    const path = `/v1/executions/${waiting?.execution_id}/approval`;
    const decided = await api('POST', path, { token: bob, body: { decision: 'approve' } });
    expect(decided.status, decided.text).toBe(200);
    await host.until(() => held.length > 0);
    running().part('value', '{"sum":3}');
    await running().finish();
    expect((await over(taskId)).result).toMatchObject({ isError: false, structuredContent: { sum: 3 } });
  });

  test('that waits for an approval is cancelled without one', async () => {
    const { taskId } = await begun('guarded_add', { a: 3, b: 4 });
    expect((await ask('tasks/cancel', { taskId })).error).toBeUndefined();
    expect((await over(taskId)).status).toBe('cancelled');
    expect(held).toEqual([]);
  });
});

describe('A29 the id of a task', () => {
  const METHODS = ['tasks/get', 'tasks/cancel', 'tasks/update'] as const;

  test.each(METHODS)('of others is to %s like one that is not there', async (method) => {
    const { taskId } = await begun();
    const others = {
      subject: await tokenFor('bob'),
      tenant: await tokenFor('alice', ALL_SCOPES, 'globex'),
      scope: await tokenFor('alice', 'tools:python sessions:write sessions:read'),
    };
    for (const token of Object.values(others)) {
      const answer = await ask(method, { taskId, inputResponses: {} }, token);
      expect(answer.error).toEqual(UNKNOWN);
    }
    expect((await get(taskId)).status).toBe('working');
  });

  test.each(METHODS)('that was made up is to %s not there, and wakes nothing', async (method) => {
    const { taskId } = await begun();
    const before = await listDurableObjectIds(env.SESSION);
    const changed = (at: number) =>
      `${taskId.slice(0, at)}${taskId[at] === 'A' ? 'B' : 'A'}${taskId.slice(at + 1)}`;
    const invented = [
      '',
      'x',
      'tsk_',
      sessionId,
      `${taskId}A`,
      changed(4),
      changed(6),
      changed(50),
      changed(80),
    ];
    for (const id of invented) {
      const { messages } = await send(request(method, { taskId: id, inputResponses: {} }));
      expect(messages[0]?.error, id).toEqual(UNKNOWN);
    }
    expect(await listDurableObjectIds(env.SESSION)).toEqual(before);
  });

  test.each([
    ['tasks/get', {}, 'params.taskId: expected string'],
    ['tasks/cancel', { taskId: 7 }, 'params.taskId: expected string'],
    ['tasks/update', { taskId: 'x' }, 'params.inputResponses: expected record'],
  ])('%s with parameters %o is told what is wrong', async (method, params, message) => {
    const { error } = await ask(method, params);
    expect(error?.code).toBe(-32_602);
    expect(error?.message).toContain(message);
  });

  test('has to stand in the header too', async () => {
    const { body, headers } = modern(request('tasks/get', { taskId: 'tsk_one' }), DECLARED);
    const token = await tokenFor('alice');
    for (const name of ['tsk_two', undefined]) {
      const { 'Mcp-Name': _, ...rest } = headers;
      const sent = name === undefined ? rest : { ...rest, 'Mcp-Name': name };
      const answer = await rpc(body, { headers: sent, token });
      expect(answer.status).toBe(400);
      expect(answer.messages[0]?.error?.code).toBe(-32_020);
    }
  });
});
