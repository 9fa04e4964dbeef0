import { listDurableObjectIds, runInDurableObject } from 'cloudflare:test';
import { env, exports } from 'cloudflare:workers';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { concatBytes } from '../../../shared/encoding.ts';
import { type Execution, ExecutionSchema, parseCursor } from '../../../shared/execution.ts';
import { newId, newSessionId } from '../../../shared/ids.ts';
import { ReceiptExportSchema, verifyChain } from '../../../shared/receipt-verify.ts';
import { SessionListSchema, SessionSchema } from '../../../shared/session.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { routes } from '../../../worker/routes/table.ts';
import { echo, type HostDouble, type Script } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { type ApiAnswer, type ApiOptions, api, problemIn, request } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { ORIGIN } from '../issuer-bindings.ts';

let host: HostDouble;
const alice = () => tokenOf({ claims: { tenant: 'acme', sub: 'alice' } });
const bob = () => tokenOf({ claims: { tenant: 'acme', sub: 'bob' } });
const mallory = () => tokenOf({ claims: { tenant: 'globex', sub: 'alice' } });

/** `hold` runs until it is interrupted, `cat` gives back its input, anything else is echoed. */
const script: Script = async (execution, session) => {
  switch (execution.arguments.command) {
    case 'hold':
      execution.started();
      await execution.write('stdout', 'begun\n');
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

beforeAll(async () => {
  host = await connectFakeHost({ script });
});
afterEach(() => {
  expect(host.failures).toEqual([]);
});
afterAll(() => {
  host.close();
});

async function open(token: string, options: ApiOptions = {}): Promise<string> {
  const answer = await api('POST', '/v1/sessions', { token, body: {}, ...options });
  expect(answer.status).toBe(201);
  return SessionSchema.parse(answer.json).session_id;
}

function shell(command: string, more: object = {}) {
  return { tool_name: 'shell', arguments: { command }, ...more };
}

async function run(token: string, sessionId: string, command: string, more: object = {}): Promise<Execution> {
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
    token,
    body: shell(command, more),
  });
  expect(answer.status, answer.text).toBeLessThan(300);
  return ExecutionSchema.parse(answer.json);
}

async function hold(token: string, sessionId: string): Promise<Execution> {
  const execution = await run(token, sessionId, 'hold', { detach: true });
  await host.until(() => host.session(sessionId).executions.has(execution.execution_id));
  return execution;
}

async function eventsOf(response: Response) {
  const events: { id: string | undefined; event: string | undefined; data: unknown }[] = [];
  const stream = (response.body ?? new Response('').body ?? new ReadableStream())
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream());
  for await (const { id, event, data } of stream) events.push({ id, event, data: JSON.parse(data) });
  return events;
}

describe('a session', () => {
  test('is created with its place, read, listed, deleted, and then not found', async () => {
    const token = await alice();
    const created = await api('POST', '/v1/sessions', { token, body: { metadata: { project: 'x' } } });
    expect(created.status).toBe(201);
    const session = SessionSchema.parse(created.json);
    expect(session).toMatchObject({
      state: 'running',
      owner: { tenant: 'acme', subject: 'alice' },
      metadata: { project: 'x' },
      host_id: host.hostId,
    });
    const path = `/v1/sessions/${session.session_id}`;
    expect(created.headers.get('Location')).toBe(path);
    expect((await api('GET', path, { token })).json).toMatchObject({ session_id: session.session_id });
    const listed = SessionListSchema.parse((await api('GET', '/v1/sessions', { token })).json);
    expect(listed.sessions.map((entry) => entry.session_id)).toContain(session.session_id);
    const deleted = await api('DELETE', path, { token });
    expect(deleted.status).toBe(204);
    expect(deleted.text).toBe('');
    for (const method of ['DELETE', 'GET']) expect((await api(method, path, { token })).status).toBe(404);
    const left = SessionListSchema.parse((await api('GET', '/v1/sessions', { token })).json);
    expect(left.sessions.map((entry) => entry.session_id)).not.toContain(session.session_id);
  });

  test('is listed to its own subject only, page by page, each once', async () => {
    const claims = { tenant: 'pages', sub: 'carol' };
    const token = await tokenOf({ claims });
    const made = [];
    for (let count = 0; count < 5; count += 1) made.push(await open(token));
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const answer: ApiAnswer = await api('GET', `/v1/sessions?limit=2${query}`, { token });
      const page = SessionListSchema.parse(answer.json);
      expect(page.sessions.length).toBeLessThanOrEqual(2);
      seen.push(...page.sessions.map((entry) => entry.session_id));
      cursor = page.next_cursor;
    } while (cursor !== null && seen.length < 10);
    expect(seen.toSorted()).toEqual(made.toSorted());
    const other = await tokenOf({ claims: { ...claims, sub: 'dave' } });
    expect((await api('GET', '/v1/sessions', { token: other })).json).toMatchObject({ sessions: [] });
    const bad = await api('GET', '/v1/sessions?cursor=!', { token });
    expect(problemIn(bad).violations?.[0]?.path).toBe('query.cursor');
  });

  test('needs an image that a host has', async () => {
    const answer = await api('POST', '/v1/sessions', { token: await alice(), body: { image: 'nowhere' } });
    expect(problemIn(answer)).toMatchObject({ status: 422, code: 'image_not_found' });
  });

  test('that its host refuses is refused for the same reason', async () => {
    host.refuseAttach = 'host_full';
    const answer = await api('POST', '/v1/sessions', { token: await alice(), body: {} });
    host.refuseAttach = undefined;
    expect(problemIn(answer)).toMatchObject({ status: 503, code: 'host_full', retryable: true });
  });
});

describe('Idempotency-Key of a create', () => {
  const withKey = (key: string) => ({ 'Idempotency-Key': key });

  test('gives one session however often it comes, also at once', async () => {
    const token = await alice();
    const create = () =>
      api('POST', '/v1/sessions', { token, body: { metadata: { n: '1' } }, headers: withKey('create-1') });
    const answers = await Promise.all([create(), create(), create()]);
    answers.push(await create());
    expect(answers.map((answer) => answer.status)).toEqual([201, 201, 201, 201]);
    const ids = answers.map((answer) => SessionSchema.parse(answer.json).session_id);
    expect(new Set(ids).size).toBe(1);
    const changed = await api('POST', '/v1/sessions', {
      token,
      body: { metadata: { n: '2' } },
      headers: withKey('create-1'),
    });
    expect(problemIn(changed)).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    await api('DELETE', `/v1/sessions/${ids[0]}`, { token });
    expect(problemIn(await create())).toMatchObject({ status: 410, code: 'session_deleted' });
  });

  test('A33: of another tenant or subject is another key', async () => {
    const create = async (token: string) => open(token, { headers: withKey('shared-key') });
    const ids = [await create(await alice()), await create(await mallory()), await create(await bob())];
    expect(new Set(ids).size).toBe(3);
    expect(await create(await alice())).toBe(ids[0]);
  });

  test.each([
    ['empty', ''],
    ['with a space', 'a b'],
    ['over 255 characters', 'x'.repeat(256)],
  ])('that is %s is refused', async (_name, key) => {
    const answer = await api('POST', '/v1/sessions', {
      token: await alice(),
      body: {},
      headers: withKey(key),
    });
    expect(problemIn(answer).violations?.[0]?.path).toBe('header.Idempotency-Key');
  });
});

const Parameters = z.record(z.string(), z.string());

/** A request to every route below a session, with a body that the route takes. */
function requestsBelow(sessionId: string, executionId: string) {
  return routes
    .filter((route) => route.path.includes('{session_id}'))
    .map((route) => {
      const values = Parameters.parse({
        session_id: sessionId,
        execution_id: executionId,
        process_id: newId('prc'),
        program_id: newId('exe'),
        repair_run_id: 'rpr_x',
        path: 'x',
        stream: 'stdout',
      });
      const path = route.path.replaceAll(/\{([a-z_]+)\}/g, (_, name: string) => values[name] ?? '');
      const body: ApiOptions = route.operationId === 'execute' ? { body: shell('x') } : {};
      if (route.operationId === 'writeStdin') body.body = { data: 'x' };
      if (route.operationId === 'interrupt' || route.operationId === 'updateSession') body.body = {};
      if (route.operationId === 'createSnapshot') body.body = { name: 'x' };
      if (route.operationId === 'rollbackSession') body.body = { snapshot_id: newId('snp') };
      if (route.operationId === 'forkSession') body.body = { count: 1 };
      if (route.operationId === 'createRepairRun') {
        body.body = { code: 'x', model: { tool_name: 'model', name: 'x' } };
      }
      if (route.operationId === 'keepArtifact') body.body = { path: 'x' };
      if (route.operationId === 'filesFrom') body.body = { artifact: 'kept-for-all', path: 'x' };
      if (route.operationId === 'startProcess') body.body = { command: 'x' };
      if (route.operationId === 'waitForProcess') body.body = { exit: true };
      if (route.operationId === 'writeProcessStdin') body.body = { data: 'x' };
      if (route.operationId === 'createProgram') body.body = { language: 'python', code: '1' };
      if (route.operationId === 'answerCalls') body.body = { results: [{ id: newId('tcl'), content: 'x' }] };
      if (route.operationId === 'toolCalls') {
        const call = { name: 'shell', arguments: '{"command": "x"}' };
        body.body = { tool_calls: [{ id: 'c1', type: 'function', function: call }] };
      }
      if (route.access.webSocket === true) body.headers = { Upgrade: 'websocket' };
      return { method: route.method, path, body, operationId: route.operationId };
    })
    .toSorted(
      (left, right) =>
        Number(left.operationId === 'deleteSession') - Number(right.operationId === 'deleteSession'),
    );
}

describe('what is not the caller’s', () => {
  test('A27: a session of another tenant is not found on any route, and its object does not wake', async () => {
    const token = await mallory();
    const sessionId = await open(await alice());
    const awake = (await listDurableObjectIds(env.SESSION)).length;
    const requests = requestsBelow(sessionId, newId('exe'));
    expect(requests.length).toBeGreaterThanOrEqual(10);
    for (const { method, path, body } of requests) {
      const answer = await api(method, path, { token, ...body });
      expect([answer.status, problemIn(answer).code], `${method} ${path}`).toEqual([404, 'not_found']);
    }
    expect((await listDurableObjectIds(env.SESSION)).length).toBe(awake);
    expect((await api('GET', `/v1/sessions/${sessionId}`, { token: await alice() })).status).toBe(200);
  });

  test('A27: ids that nobody was given look the same, and wake nothing', async () => {
    const { tagKey } = await configurationOf(env);
    const sessionId = await open(await alice());
    const ids = [
      `${sessionId.slice(0, -1)}${sessionId.endsWith('A') ? 'B' : 'A'}`,
      sessionId.slice(0, -1),
      `${sessionId}A`,
      sessionId.toUpperCase(),
      'ses_',
      'x',
    ];
    const awake = (await listDurableObjectIds(env.SESSION)).length;
    const token = await alice();
    const missing = problemIn(
      await api('GET', `/v1/sessions/${await newSessionId(tagKey, 'globex')}`, { token }),
    );
    for (const id of ids) {
      const problem = problemIn(await api('GET', `/v1/sessions/${id}`, { token }));
      expect({ ...problem, request_id: '' }).toEqual({ ...missing, request_id: '' });
    }
    expect((await listDurableObjectIds(env.SESSION)).length).toBe(awake);
  });

  test('A30: a session of another subject of the tenant is not found on any route', async () => {
    const token = await bob();
    const owner = await alice();
    const sessionId = await open(owner);
    const execution = await hold(owner, sessionId);
    for (const { method, path, body } of requestsBelow(sessionId, execution.execution_id)) {
      const answer = await api(method, path, { token, ...body });
      expect([answer.status, problemIn(answer).code], `${method} ${path}`).toEqual([404, 'not_found']);
    }
    const still = await api('GET', `/v1/sessions/${sessionId}/executions/${execution.execution_id}`, {
      token: owner,
    });
    expect(ExecutionSchema.parse(still.json).status).toBe('running');
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: owner });
  });

  test('A28 and A29: an execution or a place in a stream of another session is not found', async () => {
    const token = await alice();
    const [mine, foreign] = [await open(token), await open(await mallory())];
    const own = await run(token, mine, 'mine');
    const other = await run(await mallory(), foreign, 'theirs');
    const sibling = await run(token, await open(token), 'sibling');
    for (const executionId of [other.execution_id, sibling.execution_id, newId('exe'), 'exe_x', 'x']) {
      for (const suffix of ['', '/events', '/receipt']) {
        const path = `/v1/sessions/${mine}/executions/${executionId}${suffix}`;
        expect((await api('GET', path, { token })).status, path).toBe(404);
      }
      const stdin = `/v1/sessions/${mine}/executions/${executionId}/stdin`;
      expect((await api('POST', stdin, { token, body: { data: 'x' } })).status).toBe(404);
    }
    const events = `/v1/sessions/${mine}/executions/${own.execution_id}/events`;
    const at = (id: string) => api('GET', events, { token, headers: { 'Last-Event-ID': id } });
    expect((await at(`${other.execution_id}:0:0:0`)).status).toBe(404);
    expect(problemIn(await at('42')).violations?.[0]?.path).toBe('header.Last-Event-ID');
    expect((await at(`${own.execution_id}:0:0:0`)).status).toBe(200);
    for (const suffix of ['', '/events', '/receipt']) {
      const path = `/v1/sessions/${mine}/executions/${own.execution_id}${suffix}`;
      expect((await api('GET', path, { token })).status, path).toBe(200);
    }
  });

  test('every route below a session serves its owner', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execution = await hold(token, sessionId);
    await api('PUT', '/v1/artifacts/kept-for-all/content', { token, raw: 'x' });
    for (const { method, path, body, operationId } of requestsBelow(sessionId, execution.execution_id)) {
      // These two answer when the execution has ended, which is held here.
      if (operationId === 'execute' || operationId === 'streamExecution') continue;
      // It ends with the session.
      if (operationId === 'streamSessionEvents') continue;
      // Programs have their own tests: the host of these tests runs none, and a socket is no answer to read.
      if (operationId === 'openTerminal' || /\/(?:processes|programs\/)/.test(path)) continue;
      // There is no second host to move to, and no snapshot to go back to.
      if (operationId === 'migrateSession' || operationId === 'rollbackSession') continue;
      // There is no second host to move to.
      if (operationId === 'migrateSession') continue;
      // These need a model and a run: they have their own tests.
      if (path.includes('/repair_runs')) continue;
      const answer = await api(method, path, { token, ...body });
      const expected = operationId === 'getReceipt' ? 409 : 204;
      expect(answer.status, `${method} ${path} ${answer.text}`).toBeLessThanOrEqual(expected);
    }
  });
});

describe('an execution', () => {
  test('answers with its result, and is in the history of its session', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const done = await run(token, sessionId, 'hello');
    expect(done).toMatchObject({ status: 'succeeded', stdout: 'hello', session_id: sessionId });
    const failed = await run(token, sessionId, 'fail');
    expect(failed).toMatchObject({ status: 'failed', exit_code: 3, stderr: 'no\n' });
    const base = `/v1/sessions/${sessionId}/executions`;
    const list = await api('GET', `${base}?limit=1`, { token });
    expect(list.json).toMatchObject({
      executions: [{ execution_id: failed.execution_id }],
      next_cursor: expect.any(String),
    });
    const inBase64 = await api('GET', `${base}/${done.execution_id}?encoding=base64`, { token });
    expect(inBase64.json).toMatchObject({ stdout: btoa('hello'), encoding: 'base64' });
    expect((await api('GET', `${base}/${done.execution_id}?encoding=hex`, { token })).status).toBe(400);
  });

  test('is signed: its receipts verify with the keys of the export', async () => {
    const token = await alice();
    const sessionId = await open(token);
    await run(token, sessionId, 'one');
    const second = await run(token, sessionId, 'two');
    const exported = await api('GET', `/v1/sessions/${sessionId}/receipts`, { token });
    const { receipts, keys } = ReceiptExportSchema.parse(exported.json);
    expect(await verifyChain(receipts, keys, sessionId)).toMatchObject({ ok: true });
    const one = await api('GET', `/v1/sessions/${sessionId}/executions/${second.execution_id}/receipt`, {
      token,
    });
    expect(one.json).toEqual(receipts[1]);
    expect(second.receipt).toEqual(receipts[1]);
    const part = await api('GET', `/v1/sessions/${sessionId}/receipts?limit=1`, { token });
    expect(part.json).toMatchObject({ receipts: [receipts[0]], next_after: 1 });
    const rest = await api('GET', `/v1/sessions/${sessionId}/receipts?after=1&limit=1`, { token });
    expect(rest.json).toMatchObject({ receipts: [receipts[1]], next_after: null });
    for (const query of ['after=-1', 'limit=0', 'limit=1000000', 'limit=x']) {
      expect((await api('GET', `/v1/sessions/${sessionId}/receipts?${query}`, { token })).status).toBe(400);
    }
  });

  test.each([
    ['the Accept header', { headers: { Accept: 'application/json;q=0.5, text/event-stream' } }],
    ['the body', { stream: true }],
  ])('is streamed when %s asks for it, and again from any place', async (_name, how) => {
    const token = await alice();
    const sessionId = await open(token);
    const response = await request('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      body: shell('hello', 'stream' in how ? { stream: true } : {}),
      ...('headers' in how ? { headers: how.headers } : {}),
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('Content-Type')).toBe('text/event-stream');
    expect(response.headers.get('Request-Id')).toMatch(/^req_/);
    expect(response.headers.get('RateLimit-Limit')).not.toBeNull();
    const events = await eventsOf(response);
    expect(events.map(({ event }) => event)).toEqual(['started', 'stdout', 'end']);
    expect(events[1]?.data).toMatchObject({ text: 'hello', offset: 0 });
    const cursor = parseCursor(events[0]?.id ?? '');
    if (cursor === undefined) throw new Error('each event must have an id');
    const again = await request('GET', `/v1/sessions/${sessionId}/executions/${cursor.executionId}/events`, {
      token,
      headers: { 'Last-Event-ID': events[0]?.id ?? '' },
    });
    expect(await eventsOf(again)).toEqual(events.slice(1));
  });

  test('is one JSON answer when events are not acceptable', async () => {
    const token = await alice();
    const sessionId = await open(token);
    for (const accept of ['*/*', 'application/json', 'text/event-stream;q=0']) {
      const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell('x'),
        headers: { Accept: accept },
      });
      expect(answer.headers.get('Content-Type')).toBe('application/json');
    }
  });

  test('that is detached answers 202 with the place where it can be read', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, {
      token,
      body: shell('hold', { detach: true }),
    });
    expect(answer.status).toBe(202);
    const place = answer.headers.get('Location') ?? '';
    const read = ExecutionSchema.parse((await api('GET', place, { token })).json);
    expect(place).toBe(`/v1/sessions/${sessionId}/executions/${read.execution_id}`);
    const pending = await api('GET', `${place}/receipt`, { token });
    expect(problemIn(pending)).toMatchObject({ status: 409, code: 'receipt_pending' });
    const stopped = await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
    expect(stopped.json).toEqual({ execution_id: read.execution_id });
    const events = await eventsOf(await request('GET', `${place}/events`, { token }));
    expect(events.at(-1)).toMatchObject({ event: 'end', data: { execution: { status: 'interrupted' } } });
  });

  test('with a key runs once, and the key with another call is a conflict', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execute = (command: string) =>
      api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell(command),
        headers: { 'Idempotency-Key': 'k1' },
      });
    const answers = await Promise.all([execute('once'), execute('once')]);
    answers.push(await execute('once'));
    const ids = answers.map((answer) => ExecutionSchema.parse(answer.json).execution_id);
    expect(new Set(ids).size).toBe(1);
    expect(host.session(sessionId).executions.size).toBe(1);
    expect(problemIn(await execute('twice'))).toMatchObject({ status: 422, code: 'idempotency_conflict' });
    expect(host.session(sessionId).executions.size).toBe(1);
  });

  test('takes input as bytes and as JSON until its end, with the scope of its tool', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const { execution_id: id } = await run(token, sessionId, 'cat', { detach: true });
    await host.until(() => host.session(sessionId).executions.has(id));
    const path = `/v1/sessions/${sessionId}/executions/${id}/stdin`;
    const bytes = new Uint8Array([0, 255, 10]);
    const octets = { 'Content-Type': 'application/octet-stream' };
    expect((await api('POST', path, { token, raw: bytes, headers: octets })).status).toBe(204);
    expect((await api('POST', path, { token, body: { data: 'é' } })).status).toBe(204);
    expect((await api('POST', path, { token, body: { data: 'AA==', encoding: 'base64' } })).status).toBe(204);
    const bad = await api('POST', path, { token, body: { data: 'AA', encoding: 'base64' } });
    expect(problemIn(bad).violations?.[0]?.path).toBe('body.data');
    expect(
      (await api('POST', path, { token, raw: 'x', headers: { 'Content-Type': 'text/plain' } })).status,
    ).toBe(415);
    const large = await api('POST', path, { token, raw: new Uint8Array(1_048_577), headers: octets });
    expect(problemIn(large).code).toBe('payload_too_large');
    const pythonOnly = await tokenOf({ claims: { scope: 'tools:python' } });
    const refused = await api('POST', path, { token: pythonOnly, body: { data: 'x' } });
    expect(refused.status).toBe(403);
    expect(refused.headers.get('WWW-Authenticate')).toContain('scope="tools:shell"');
    expect((await api('POST', `${path}?eof=true`, { token, headers: octets })).status).toBe(204);
    const events = await eventsOf(
      await request('GET', `/v1/sessions/${sessionId}/executions/${id}/events?encoding=base64`, { token }),
    );
    const output = events.find(({ event }) => event === 'stdout');
    expect(output?.data).toMatchObject({ text: btoa('\x00\xff\n\xc3\xa9\x00') });
    const late = await api('POST', path, { token, body: { data: 'x' } });
    expect(problemIn(late)).toMatchObject({ status: 409, code: 'execution_not_running' });
  });

  test('that is interrupted by name is the one that stops', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const held = await hold(token, sessionId);
    const path = `/v1/sessions/${sessionId}/interrupt`;
    const none = await api('POST', path, { token, body: { execution_id: newId('exe') } });
    expect(none.status).toBe(404);
    const stopped = await api('POST', path, { token, body: { execution_id: held.execution_id } });
    expect(stopped.json).toEqual({ execution_id: held.execution_id });
    await host.until(() => host.session(sessionId).heard.some((frame) => frame.type === 'ack'));
    expect((await api('POST', path, { token, body: { execution_id: 'x' } })).status).toBe(400);
  });
});

describe('a call in a session of its own', () => {
  test('gives its result, and the session is gone', async () => {
    const token = await tokenOf({ claims: { tenant: 'once' } });
    const answer = await api('POST', '/v1/execute', { token, body: shell('alone') });
    const execution = ExecutionSchema.parse(answer.json);
    expect(execution).toMatchObject({ status: 'succeeded', stdout: 'alone' });
    await host.until(() => !host.sessions.has(execution.session_id));
    expect((await api('GET', `/v1/sessions/${execution.session_id}`, { token })).status).toBe(404);
    expect((await api('GET', '/v1/sessions', { token })).json).toMatchObject({ sessions: [] });
  });

  test('is streamed too', async () => {
    const token = await alice();
    const response = await request('POST', '/v1/execute', { token, body: shell('alone', { stream: true }) });
    const events = await eventsOf(response);
    expect(events.map(({ event }) => event)).toEqual(['started', 'stdout', 'end']);
  });

  test('with a key runs once, also after its session is gone', async () => {
    const token = await alice();
    const execute = (command: string) =>
      api('POST', '/v1/execute', { token, body: shell(command), headers: { 'Idempotency-Key': 'alone' } });
    const first = ExecutionSchema.parse((await execute('once')).json);
    await host.until(() => !host.sessions.has(first.session_id));
    const second = ExecutionSchema.parse((await execute('once')).json);
    expect(second).toMatchObject({ execution_id: first.execution_id, stdout: 'once' });
    expect(problemIn(await execute('other')).code).toBe('idempotency_conflict');
  });

  test('ends its session also when the client goes away in the middle of it', async () => {
    const known = new Set(host.sessions.keys());
    const client = new AbortController();
    const gone = exports.default
      .fetch(
        new Request(`${ORIGIN}/v1/execute`, {
          method: 'POST',
          headers: { Authorization: `Bearer ${await alice()}`, 'Content-Type': 'application/json' },
          body: JSON.stringify(shell('hold')),
          signal: client.signal,
        }),
      )
      .catch((error: unknown) => error);
    const own = () => [...host.sessions.values()].find((session) => !known.has(session.sessionId));
    await host.until(() => own()?.executions.size === 1);
    const session = own();
    client.abort();
    expect(await gone).toBeInstanceOf(Error);
    for (const execution of session?.executions.values() ?? []) execution.tookInterrupt();
    await host.until(() => own() === undefined);
  });

  test('whose arguments are wrong makes no session', async () => {
    const token = await tokenOf({ claims: { tenant: 'wrong' } });
    const before = (await listDurableObjectIds(env.SESSION)).length;
    const bodies = [
      { tool_name: 'shell', arguments: {} },
      shell('x', { detach: true }),
      { tool_name: 'nothing', arguments: {} },
    ];
    for (const body of bodies) {
      expect([400, 404]).toContain((await api('POST', '/v1/execute', { token, body })).status);
    }
    expect((await listDurableObjectIds(env.SESSION)).length).toBe(before);
  });
});

describe('R24: an object that is reset in the middle of a call', () => {
  /** What a deploy does to an object. */
  function reset(sessionId: string): Promise<void> {
    const stub = env.SESSION.get(env.SESSION.idFromName(`acme:${sessionId}`));
    return runInDurableObject(stub, (_object, state) => state.abort('reset by the test')).then(
      () => {},
      () => {},
    );
  }

  test('gives a retryable 503, and a repeat with the same key finds the one execution', async () => {
    const token = await alice();
    const sessionId = await open(token);
    const execute = () =>
      api('POST', `/v1/sessions/${sessionId}/execute`, {
        token,
        body: shell('hold'),
        headers: { 'Idempotency-Key': 'deploy' },
      });
    const cut = execute();
    await host.until(() => host.session(sessionId).executions.size === 1);
    await reset(sessionId);
    const refused = await cut;
    expect(problemIn(refused)).toMatchObject({ status: 503, code: 'object_reset', retryable: true });
    expect(refused.headers.get('Retry-After')).toBe('1');
    await host.until(() => !host.session(sessionId).isLinked);
    await host.session(sessionId).connect();
    const repeated = execute();
    const [execution] = host.session(sessionId).executions.values();
    await host.until(() => host.session(sessionId).isLinked);
    await api('POST', `/v1/sessions/${sessionId}/interrupt`, { token });
    expect((await repeated).json).toMatchObject({ execution_id: execution?.id, status: 'interrupted' });
    expect(host.session(sessionId).executions.size).toBe(1);
  });

  test('is not noticed by reads of the same moment', async () => {
    const token = await alice();
    const sessionId = await open(token);
    for (let round = 0; round < 5; round += 1) {
      const read = () => api('GET', `/v1/sessions/${sessionId}`, { token });
      const [, ...answers] = await Promise.all([reset(sessionId), read(), read(), read()]);
      expect(answers.map((answer) => answer.status)).toEqual([200, 200, 200]);
    }
  });
});
