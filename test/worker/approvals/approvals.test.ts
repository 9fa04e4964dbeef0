import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { ApprovalListSchema } from '../../../shared/approval.ts';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { ExecutionListSchema } from '../../../worker/routes/executions.ts';
import type { HostDouble, Script } from '../../fixtures/host-double/host-double.ts';
import { ALL_SCOPES, tokenOf } from '../fixture-issuer.ts';
import { api, problemIn, request } from '../harness/api.ts';
import { EventReader, type ReadEvent } from '../harness/event-reader.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { call, rpc } from '../mcp/rpc.ts';

const CallResultSchema = z.looseObject({
  structuredContent: z.unknown().optional(),
  isError: z.boolean().optional(),
});

let host: HostDouble;
let sessionId: string;
const ran: string[] = [];

const script: Script = async (execution) => {
  execution.started();
  ran.push(String(execution.arguments.code));
  execution.part('value', '{"sum":3}');
  return execution.finish();
};

const tokenFor = (sub: string, scope = ALL_SCOPES, tenant = 'acme') =>
  tokenOf({ claims: { tenant, sub, scope } });

const ADD = {
  name: 'add',
  description: 'Adds',
  kind: 'code',
  language: 'python',
  code: 'def main(a, b):\n    return {"sum": a + b}\n',
  approval: 'required',
};
const ASK = {
  name: 'ask',
  description: 'Asks another service',
  kind: 'http',
  url: 'https://api.example.com/v1',
  method: 'POST',
  approval: 'required',
};

async function put(tool: { name: string; [field: string]: unknown }): Promise<void> {
  const body = { ...tool };
  const answer = await api('PUT', `/v1/tools/${tool.name}`, { token: await tokenFor('alice'), body });
  expect(answer.status, answer.text).toBeLessThan(300);
}

beforeAll(async () => {
  host = await connectFakeHost({ script });
  const created = await api('POST', '/v1/sessions', { token: await tokenFor('alice'), body: {} });
  sessionId = SessionSchema.parse(created.json).session_id;
  await put(ADD);
  await put(ASK);
});
afterEach(() => {
  expect(host.failures).toEqual([]);
  ran.length = 0;
  vi.restoreAllMocks();
});
afterAll(() => host.close());

async function ask(
  tool_name: string,
  args: object,
  headers: Record<string, string> = {},
): Promise<Execution> {
  const body = { tool_name, arguments: args };
  const options = { token: await tokenFor('alice'), body, headers };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, options);
  expect(answer.status, answer.text).toBe(202);
  const execution = ExecutionSchema.parse(answer.json);
  expect(answer.headers.get('location')).toBe(
    `/v1/sessions/${sessionId}/executions/${execution.execution_id}`,
  );
  return execution;
}

async function decide(executionId: string, body: object, token?: string) {
  const options = { token: token ?? (await tokenFor('bob')), body };
  return api('POST', `/v1/executions/${executionId}/approval`, options);
}

async function read(executionId: string): Promise<Execution> {
  const path = `/v1/sessions/${sessionId}/executions/${executionId}`;
  return ExecutionSchema.parse((await api('GET', path, { token: await tokenFor('alice') })).json);
}

async function ended(executionId: string): Promise<Execution> {
  return eventually(async () => {
    const execution = await read(executionId);
    expect(['waiting', 'queued', 'granted', 'running']).not.toContain(execution.status);
    return execution;
  });
}

describe('a call of a tool that needs an approval', () => {
  test('waits, and is made once another subject approves', async () => {
    const waiting = await ask('add', { a: 1, b: 2 });
    expect(waiting).toMatchObject({
      status: 'waiting',
      tool_name: 'add',
      started_at: null,
      approval: { status: 'waiting', decided_by: null },
    });
    const listed = await api('GET', '/v1/approvals?status=waiting', { token: await tokenFor('bob') });
    expect(ApprovalListSchema.parse(listed.json).approvals).toMatchObject([
      {
        execution_id: waiting.execution_id,
        session_id: sessionId,
        tool_name: 'add',
        arguments: { a: 1, b: 2 },
        requested_by: 'alice',
      },
    ]);
    expect(ran).toEqual([]);
    const own = await decide(waiting.execution_id, { decision: 'approve' }, await tokenFor('alice'));
    expect(problemIn(own).code).toBe('forbidden');
    const approved = await decide(waiting.execution_id, { decision: 'approve', reason: 'fine' });
    expect(approved.status, approved.text).toBe(200);
    expect(approved.json).toMatchObject({
      approval: { status: 'approved', decided_by: 'bob', reason: 'fine' },
    });
    expect(await ended(waiting.execution_id)).toMatchObject({
      execution_id: waiting.execution_id,
      status: 'succeeded',
      tool_name: 'add',
      structured: { sum: 3 },
    });
    expect(ran).toHaveLength(1);
    expect(problemIn(await decide(waiting.execution_id, { decision: 'deny' })).code).toBe('approval_decided');
  });

  test('that is made at the edge is made by its id too', async () => {
    const requests: string[] = [];
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      requests.push(await new Request(input, init).text());
      return Response.json({ done: true });
    });
    const waiting = await ask('ask', { q: 'x' });
    expect(requests).toEqual([]);
    await decide(waiting.execution_id, { decision: 'approve' });
    expect(await ended(waiting.execution_id)).toMatchObject({
      status: 'succeeded',
      structured: { done: true },
    });
    expect(requests).toEqual(['{"q":"x"}']);
  });

  test('is refused where it is denied, cancelled or forgotten, and nothing runs', async () => {
    const denied = await ask('add', { a: 1, b: 2 });
    await decide(denied.execution_id, { decision: 'deny', reason: 'too dear' });
    expect(await read(denied.execution_id)).toMatchObject({
      status: 'refused',
      reason: 'approval_denied',
      error: { name: 'ApprovalDenied', message: 'too dear' },
      approval: { status: 'denied', decided_by: 'bob' },
    });
    const cancelled = await ask('add', { a: 1, b: 2 });
    const body = { execution_id: cancelled.execution_id };
    const options = { token: await tokenFor('alice'), body };
    expect((await api('POST', `/v1/sessions/${sessionId}/interrupt`, options)).status).toBe(200);
    expect(await read(cancelled.execution_id)).toMatchObject({ status: 'cancelled' });
    expect(problemIn(await decide(cancelled.execution_id, { decision: 'approve' })).code).toBe(
      'approval_decided',
    );

    const forgotten = await ask('add', { a: 1, b: 2 });
    const stub = env.APPROVALS.get(env.APPROVALS.idFromName('acme'));
    await runInDurableObject(stub, (_, state) => {
      state.storage.sql.exec(
        'UPDATE approval SET expiresAtMs = 1 WHERE executionId = ?',
        forgotten.execution_id,
      );
    });
    expect(await runDurableObjectAlarm(stub)).toBe(true);
    expect(await read(forgotten.execution_id)).toMatchObject({
      status: 'refused',
      reason: 'approval_expired',
    });
    expect(problemIn(await decide(forgotten.execution_id, { decision: 'approve' })).code).toBe(
      'approval_decided',
    );
    expect(ran).toEqual([]);
  });

  test('is in the list of its session, whatever became of it, and page by page', async () => {
    const denied = await ask('add', { a: 1, b: 2 });
    await decide(denied.execution_id, { decision: 'deny' });
    const made = await ask('add', { a: 1, b: 2 });
    await decide(made.execution_id, { decision: 'approve' });
    await ended(made.execution_id);
    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ done: true }));
    const atEdge = await ask('ask', { q: 'x' });
    await decide(atEdge.execution_id, { decision: 'approve' });
    await ended(atEdge.execution_id);
    const waiting = await ask('add', { a: 1, b: 2 });
    const expected = [
      [waiting.execution_id, 'waiting'],
      [atEdge.execution_id, 'succeeded'],
      [made.execution_id, 'succeeded'],
      [denied.execution_id, 'refused'],
    ];
    for (const limit of [1, 2, 3, 100]) {
      const listed: [string, string][] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const query: string = `limit=${limit}${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
        const page = await api('GET', `/v1/sessions/${sessionId}/executions?${query}`, {
          token: await tokenFor('alice'),
        });
        const { executions, next_cursor } = ExecutionListSchema.parse(page.json);
        expect(executions.length).toBeLessThanOrEqual(limit);
        for (const { execution_id, status, structured } of executions) {
          listed.push([execution_id, status]);
          expect(structured).toBeNull();
        }
        cursor = next_cursor;
      }
      expect(new Set(listed.map(([id]) => id)).size).toBe(listed.length);
      const own = new Set(expected.map(([id]) => id));
      expect(listed.filter(([id]) => own.has(id))).toEqual(expected);
    }
    const wrong = await api('GET', `/v1/sessions/${sessionId}/executions?cursor=x~y`, {
      token: await tokenFor('alice'),
    });
    expect(problemIn(wrong).violations?.[0]?.path).toBe('query.cursor');
    const path = `/v1/sessions/${sessionId}/executions?cursor=end~`;
    const others = await api('GET', path, { token: await tokenFor('bob') });
    expect(problemIn(others).code).toBe('not_found');
    await decide(waiting.execution_id, { decision: 'deny' });
  });

  test('has events from the beginning: it waits, then it is the stream of what runs', async () => {
    const stream = async (executionId: string, lastEventId?: string, sub = 'alice') => {
      const headers = new Headers(lastEventId === undefined ? [] : [['Last-Event-ID', lastEventId]]);
      const path = `/v1/sessions/${sessionId}/executions/${executionId}/events`;
      return request('GET', path, { token: await tokenFor(sub), headers });
    };
    const kinds = (events: readonly ReadEvent[]) => events.map(({ data }) => data.event);
    const waiting = await ask('add', { a: 1, b: 2 });
    expect((await stream(waiting.execution_id, undefined, 'bob')).status).toBe(404);
    const reader = new EventReader(await stream(waiting.execution_id));
    const first = await reader.next();
    expect(first?.data).toMatchObject({ event: 'waiting', approval: { status: 'waiting' } });
    await decide(waiting.execution_id, { decision: 'approve' });
    const seen = kinds(await reader.toEnd()).filter((kind) => kind !== 'waiting');
    expect(seen).toEqual(['started', 'end']);
    expect(reader.events.at(-1)?.data).toMatchObject({
      execution: { status: 'succeeded', structured: { sum: 3 } },
    });
    const again = new EventReader(await stream(waiting.execution_id, first?.id));
    expect(kinds(await again.toEnd())).toEqual(['started', 'end']);

    const denied = await ask('add', { a: 1, b: 2 });
    const refused = new EventReader(await stream(denied.execution_id));
    await refused.next();
    await decide(denied.execution_id, { decision: 'deny', reason: 'no' });
    const end = await refused.until(({ data }) => data.event === 'end');
    expect(end.data).toMatchObject({ execution: { status: 'refused', error: { message: 'no' } } });

    vi.spyOn(globalThis, 'fetch').mockImplementation(async () => new Response('a\nb'));
    const atEdge = await ask('ask', { q: 'x' });
    await decide(atEdge.execution_id, { decision: 'approve' });
    await ended(atEdge.execution_id);
    const whole = await new EventReader(await stream(atEdge.execution_id)).toEnd();
    expect(kinds(whole)).toEqual(['started', 'stdout', 'end']);
    const rest = new EventReader(await stream(atEdge.execution_id, whole[1]?.id));
    expect(kinds(await rest.toEnd())).toEqual(['end']);
  });

  test('is listed and decided over MCP by who may approve', async () => {
    const waiting = await ask('add', { a: 1, b: 2 });
    const approve = async (sub: string, name: string, args: Record<string, unknown>) => {
      const token = await tokenFor(sub, 'tools:approve');
      return CallResultSchema.parse((await rpc(call(1, name, args), { token })).messages[0]?.result);
    };
    const listed = await approve('bob', 'list_approvals', {});
    expect(listed.structuredContent).toMatchObject({
      approvals: [{ execution_id: waiting.execution_id, tool_name: 'add', requested_by: 'alice' }],
    });
    const decision = { execution_id: waiting.execution_id, decision: 'approve' };
    const own = await approve('alice', 'decide_approval', decision);
    expect(own).toMatchObject({ isError: true });
    const decided = await approve('bob', 'decide_approval', decision);
    expect(decided.structuredContent).toMatchObject({ approval: { status: 'approved', decided_by: 'bob' } });
    expect(await ended(waiting.execution_id)).toMatchObject({ status: 'succeeded' });
    const unable = await tokenFor('bob', 'tools:python');
    const refused = await rpc(call(1, 'list_approvals', {}), { token: unable });
    expect(refused.messages[0]?.error?.message).toContain('no tool "list_approvals"');
  });

  test('is not made where the tool is another one by then, or its caller’s right to it is gone', async () => {
    const waiting = await ask('add', { a: 1, b: 2 });
    await put({ ...ADD, code: 'def main(a, b):\n    return "something else"\n' });
    await decide(waiting.execution_id, { decision: 'approve' });
    expect(await ended(waiting.execution_id)).toMatchObject({
      status: 'refused',
      reason: 'not_made',
      error: { message: expect.stringContaining('another tool') },
    });
    const second = await ask('add', { a: 1, b: 2 });
    await put({ ...ADD, required_scopes: ['tools:python', 'payments'] });
    await decide(second.execution_id, { decision: 'approve' });
    expect(await ended(second.execution_id)).toMatchObject({ status: 'refused', reason: 'not_made' });
    expect(ran).toEqual([]);
    await put(ADD);
  });

  test('is not made once its caller is barred', async () => {
    const waiting = await ask('add', { a: 1, b: 2 });
    await runInDurableObject(env.APPROVALS.get(env.APPROVALS.idFromName('acme')), (_, { storage }) => {
      storage.sql.exec(
        "UPDATE approval SET call = json_set(call, '$.tokenId', 'gone') WHERE executionId = ?",
        waiting.execution_id,
      );
    });
    await env.TENANT.getByName('acme').revokeToken('gone');
    await decide(waiting.execution_id, { decision: 'approve' });
    expect(await ended(waiting.execution_id)).toMatchObject({
      status: 'refused',
      reason: 'not_made',
      error: { message: expect.stringContaining('revoked') },
    });
  });

  test('is not taken with more than somebody can read, nor more of them than fifty', async () => {
    const large = { tool_name: 'add', arguments: { a: 'x'.repeat(65_536) } };
    const path = `/v1/sessions/${sessionId}/execute`;
    const options = { token: await tokenFor('alice'), body: large };
    expect(problemIn(await api('POST', path, options)).code).toBe('payload_too_large');
    const waiting: Execution[] = [];
    for (let count = 0; count < 50; count += 1) waiting.push(await ask('add', { a: count }));
    const more = { ...options, body: { tool_name: 'add', arguments: { a: 50 } } };
    expect(problemIn(await api('POST', path, more)).code).toBe('quota_exceeded');
    for (const { execution_id: id } of waiting) await decide(id, { decision: 'deny' });
  });

  test('is checked before it is taken, and taken once with its key', async () => {
    const options = { token: await tokenFor('alice'), body: { tool_name: 'add', arguments: { a: 1, b: 2 } } };
    const once = await api('POST', '/v1/execute', options);
    expect(problemIn(once).code).toBe('approval_required');
    await put({ ...ADD, input_schema: { type: 'object', required: ['a'] } });
    const wrong = { ...options, body: { tool_name: 'add', arguments: {} } };
    expect(problemIn(await api('POST', `/v1/sessions/${sessionId}/execute`, wrong)).code).toBe(
      'invalid_request',
    );
    await put(ADD);
    const first = await ask('add', { a: 5, b: 5 }, { 'Idempotency-Key': 'approve-1' });
    const again = await ask('add', { a: 5, b: 5 }, { 'Idempotency-Key': 'approve-1' });
    expect(again.execution_id).toBe(first.execution_id);
    const other = {
      token: await tokenFor('alice'),
      body: { tool_name: 'add', arguments: { a: 6 } },
      headers: { 'Idempotency-Key': 'approve-1' },
    };
    expect(problemIn(await api('POST', `/v1/sessions/${sessionId}/execute`, other)).code).toBe(
      'idempotency_conflict',
    );
    await decide(first.execution_id, { decision: 'deny' });
  });

  test('is nobody else’s business', async () => {
    const waiting = await ask('add', { a: 1, b: 2 });
    const foreign = await tokenFor('bob', ALL_SCOPES, 'globex');
    expect(problemIn(await decide(waiting.execution_id, { decision: 'approve' }, foreign)).code).toBe(
      'not_found',
    );
    expect((await api('GET', '/v1/approvals', { token: foreign })).json).toEqual({ approvals: [] });
    const without = await tokenFor('bob', 'tools:python tools:write sessions:read');
    expect(problemIn(await decide(waiting.execution_id, { decision: 'approve' }, without)).code).toBe(
      'insufficient_scope',
    );
    const path = `/v1/sessions/${sessionId}/executions/${waiting.execution_id}`;
    expect((await api('GET', path, { token: await tokenFor('bob') })).status).toBe(404);
    await decide(waiting.execution_id, { decision: 'deny' });
  });
});

describe('a model', () => {
  test('is told that its call waits, and gets the result by the same call once it is approved', async () => {
    const token = await tokenFor('alice');
    const body = {
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":7,"b":8}' } }],
    };
    const path = `/v1/sessions/${sessionId}/tool_calls`;
    const first = await api('POST', path, { token, body });
    expect(first.text).toContain('error: approval_required: add needs an approval');
    const [executionId = ''] = /exe_[A-Za-z0-9_-]{22}/.exec(first.text) ?? [];
    expect((await api('POST', path, { token, body })).text).toContain(executionId);
    expect(ran).toEqual([]);
    await decide(executionId, { decision: 'approve' });
    const result = await api('POST', path, { token, body });
    expect(result.json).toMatchObject({
      messages: [{ tool_call_id: 'c1', content: '{"sum":3}' }],
      calls: [{ execution_id: executionId, status: 'succeeded' }],
    });
    expect(ran).toHaveLength(1);
    // It had its result: the same call once more is another one.
    const another = await api('POST', path, { token, body });
    expect(another.text).toContain('approval_required');
    expect(another.text).not.toContain(executionId);
    const [nextId = ''] = /exe_[A-Za-z0-9_-]{22}/.exec(another.text) ?? [];
    await decide(nextId, { decision: 'deny', reason: 'once is enough' });
    expect((await api('POST', path, { token, body })).text).toContain('once is enough');
  });

  test('over MCP needs a session for it', async () => {
    const token = await tokenFor('alice');
    const without = await rpc(call(1, 'add', { a: 1, b: 1 }), { token });
    expect(without.text).toContain('name a session_id');
    const waits = await rpc(call(2, 'add', { a: 1, b: 1, session_id: sessionId }), { token });
    expect(waits.messages[0]?.result).toMatchObject({ isError: true });
    const [executionId = ''] = /exe_[A-Za-z0-9_-]{22}/.exec(waits.text) ?? [];
    await decide(executionId, { decision: 'approve' });
    const done = await rpc(call(3, 'add', { a: 1, b: 1, session_id: sessionId }), { token });
    expect(done.messages[0]?.result).toMatchObject({ content: [{ type: 'text', text: '{"sum":3}' }] });
  });
});
