import { runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { beforeEach, describe, expect, test } from 'vitest';
import { type Execution, ExecutionSchema } from '../../../shared/execution.ts';
import { READERS_LEAVE_MS } from '../../../worker/objects/session/retention/retention.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { newWebhookSecret } from '../../../worker/webhooks/signature.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { SessionEventReader } from '../harness/session-events.ts';
import {
  at,
  create,
  expectTriedAgain,
  internet,
  open,
  passTime,
  receiver,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';
import { isSignedBy, Receiver } from './receiver.ts';

const secret = newWebhookSecret();
const ran: string[] = [];
let sessionId: string;

useHookedTenant({
  script: async (execution) => {
    execution.started();
    ran.push(String(execution.arguments.code));
    execution.part('value', '{"sum":3}');
    return execution.finish();
  },
});

const ADD = {
  description: 'Adds',
  kind: 'code',
  language: 'python',
  code: 'def add(a, b):\n    return {"sum": a + b}\n',
  approval: 'required',
};
const ASK = {
  description: 'Asks another service',
  kind: 'http',
  url: 'https://api.example.com/v1',
  method: 'POST',
  approval: 'required',
};

async function put(name: string, tool: object): Promise<void> {
  const answer = await api('PUT', `/v1/tools/${name}`, { token: await token(), body: tool });
  expect(answer.status, answer.text).toBeLessThan(300);
}

beforeEach(async () => {
  ran.length = 0;
  await put('add', ADD);
  await put('ask', ASK);
  sessionId = await open();
});

const executions = () => `/v1/sessions/${sessionId}/executions`;

async function post(tool_name: string, more: object, headers: Record<string, string> = {}) {
  const body = { tool_name, arguments: { a: 1, b: 2 }, ...more };
  return api('POST', `/v1/sessions/${sessionId}/execute`, { token: await token(), body, headers });
}

const told = () => ({ detach: true, callback: { url: receiver.url, secret } });

async function ask(tool: 'add' | 'ask' = 'add', headers: Record<string, string> = {}): Promise<string> {
  const answer = await post(tool, told(), headers);
  expect(answer.status, answer.text).toBe(202);
  const execution = ExecutionSchema.parse(answer.json);
  expect(execution.status).toBe('waiting');
  return execution.execution_id;
}

async function decide(executionId: string, decision: 'approve' | 'deny'): Promise<void> {
  const options = { token: await token('bob'), body: { decision } };
  const answer = await api('POST', `/v1/executions/${executionId}/approval`, options);
  expect(answer.status, answer.text).toBe(200);
}

async function read(executionId: string): Promise<Execution> {
  const answer = await api('GET', `${executions()}/${executionId}`, { token: await token() });
  return ExecutionSchema.parse(answer.json);
}

/** The one message, signed, which says of the call what the call says of itself. */
async function message(executionId: string) {
  await eventually(() => expect(receiver.received).toHaveLength(1));
  const received = at(receiver.received, 0);
  expect(await isSignedBy(secret, received)).toBe(true);
  expect(received.event).toMatchObject({
    type: 'execution.finished',
    data: { session_id: sessionId, execution_id: executionId },
  });
  return received;
}

const approvals = () => env.APPROVALS.get(env.APPROVALS.idFromName(tenant));

/** What the tool asks; it answers when it is let. */
function heldService() {
  const { promise, resolve } = Promise.withResolvers<void>();
  let asked = 0;
  internet.host('api.example.com', async () => {
    asked += 1;
    await promise;
    return Response.json({ done: true });
  });
  return { asked: () => asked, answer: resolve };
}

async function change(executionId: string, what: string): Promise<void> {
  await runInDurableObject(approvals(), (_, { storage }) => {
    storage.sql.exec(`UPDATE approval SET ${what} WHERE executionId = ?`, executionId);
  });
}

async function keptOf(executionId: string): Promise<unknown> {
  return runInDurableObject(approvals(), (_, { storage }) =>
    storage.sql.exec('SELECT callback, owesEnd FROM approval WHERE executionId = ?', executionId).one(),
  );
}

/** Whose ends the events of the session tell, up to one of a call that is made now. */
async function finished(): Promise<unknown[]> {
  const last = ExecutionSchema.parse((await post('shell', { arguments: { command: 'x' } })).json);
  const reader = await SessionEventReader.open(sessionId, await token());
  const ids: unknown[] = [];
  while (ids.at(-1) !== last.execution_id) {
    const { event } = await reader.until('execution.finished');
    if (event.type === 'execution.finished') ids.push(event.data.execution_id);
  }
  await reader.cancel();
  return ids.slice(0, -1);
}

const ends: [string, (executionId: string) => Promise<unknown>, object][] = [
  [
    'denied',
    (executionId) => decide(executionId, 'deny'),
    { status: 'refused', reason: 'approval_denied', error: { name: 'ApprovalDenied' } },
  ],
  [
    'withdrawn',
    async (execution_id) => {
      const options = { token: await token(), body: { execution_id } };
      return api('POST', `/v1/sessions/${sessionId}/interrupt`, options);
    },
    { status: 'cancelled', reason: 'interrupted' },
  ],
  [
    'forgotten',
    async (executionId) => {
      await change(executionId, 'expiresAtMs = 1');
      return runDurableObjectAlarm(approvals());
    },
    { status: 'refused', reason: 'approval_expired' },
  ],
  [
    'approved when its tool was another one',
    async (executionId) => {
      await put('add', { ...ADD, code: 'def add(a, b):\n    return 0\n' });
      return decide(executionId, 'approve');
    },
    { status: 'refused', reason: 'not_made' },
  ],
  [
    'approved, and lost by whoever was to make it',
    async (executionId) => {
      await change(executionId, "status = 'approved', decidedAtMs = 1");
      return runDurableObjectAlarm(approvals());
    },
    { status: 'unknown', reason: 'end_not_seen' },
  ],
];

describe('the callback of a call that needs an approval', () => {
  test('is told when the call has ended in its session, and nothing before', async () => {
    const executionId = await ask();
    await decide(executionId, 'approve');
    const received = await message(executionId);
    expect(received.event).toMatchObject({ data: { tool_name: 'add', status: 'succeeded' } });
    expect(ran).toHaveLength(1);
    const shown = await api('GET', `${executions()}/${executionId}`, { token: await token() });
    const listed = await api('GET', '/v1/approvals', { token: await token('bob') });
    for (const { text } of [shown, listed]) {
      expect(text).toContain(executionId);
      expect(text).not.toContain(secret);
      expect(text).not.toContain(receiver.host);
    }
  });

  test('is told when the call has ended that the gateway made', async () => {
    const held = heldService();
    const executionId = await ask('ask');
    await decide(executionId, 'approve');
    await eventually(() => expect(held.asked()).toBe(1));
    expect(receiver.received).toEqual([]);
    held.answer();
    const received = await message(executionId);
    expect(received.event).toMatchObject({ data: { tool_name: 'ask', status: 'succeeded' } });
    expect(received.text).not.toContain('done');
  });

  test.each(ends)('is told that the call was %s, and that nothing ran', async (_, end, expected) => {
    const executionId = await ask();
    await end(executionId);
    const received = await message(executionId);
    expect(received.event).toMatchObject({ data: { ...expected, started_at: null, stdout_bytes: 0 } });
    expect(await read(executionId)).toMatchObject(expected);
    expect(ran).toEqual([]);
  });

  test('is told though the session is gone by then', async () => {
    const executionId = await ask();
    const deleted = await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
    expect(deleted.status, deleted.text).toBe(204);
    await decide(executionId, 'approve');
    const received = await message(executionId);
    expect(received.event).toMatchObject({ data: { status: 'refused', reason: 'not_made' } });
  });

  test('is told though the session goes while the gateway makes the call', async () => {
    const held = heldService();
    const executionId = await ask('ask');
    await decide(executionId, 'approve');
    await eventually(() => expect(held.asked()).toBe(1));
    const deleted = await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
    expect(deleted.status, deleted.text).toBe(204);
    passTime(READERS_LEAVE_MS + 1_000);
    await runDurableObjectAlarm(
      env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId))),
    );
    const received = await message(executionId);
    expect(received.event).toMatchObject({ data: { status: 'unknown', reason: 'end_not_seen' } });
    held.answer();
  });

  test('is told once, however often the approvals look, and kept by nobody then', async () => {
    const executionId = await ask();
    await decide(executionId, 'deny');
    await message(executionId);
    await eventually(async () => expect(await keptOf(executionId)).toEqual({ callback: null, owesEnd: 0 }));
    // As after a restart between telling the session and writing down that it was told.
    await change(executionId, 'owesEnd = 1');
    await runDurableObjectAlarm(approvals());
    expect(await keptOf(executionId)).toMatchObject({ owesEnd: 0 });
    expect(await finished()).toEqual([executionId]);
  });

  test('is not told a loss by the approvals where the session has the call', async () => {
    const executionId = await ask();
    await decide(executionId, 'approve');
    await message(executionId);
    await eventually(async () => expect(await keptOf(executionId)).toEqual({ callback: null, owesEnd: 0 }));
    await change(executionId, 'isMade = 0, owesEnd = 1, decidedAtMs = 1');
    await runDurableObjectAlarm(approvals());
    expect(await keptOf(executionId)).toMatchObject({ owesEnd: 0 });
    expect(await finished()).toEqual([executionId]);
  });

  test('is tried again like any message', async () => {
    receiver.answers = [() => new Response(null, { status: 500 })];
    await decide(await ask(), 'deny');
    await expectTriedAgain();
  });

  test('is that of the first call with a key', async () => {
    const headers = { 'Idempotency-Key': 'once' };
    const [first, second] = [await ask('add', headers), await ask('add', headers)];
    expect(second).toBe(first);
    await decide(first, 'approve');
    await message(first);
    expect(ran).toHaveLength(1);
  });

  test('says what webhooks are told, whoever has a callback', async () => {
    const hooks = new Receiver(internet, 'approvals.example.com');
    await create({ url: hooks.url, events: ['execution.finished'] });
    const executionId = await ask();
    const silent = ExecutionSchema.parse((await post('add', {})).json).execution_id;
    await decide(executionId, 'deny');
    await decide(silent, 'deny');
    const { id } = await message(executionId);
    await eventually(() => expect(hooks.received).toHaveLength(2));
    expect(hooks.received.map(({ event }) => event.data)).toMatchObject(
      expect.arrayContaining([
        expect.objectContaining({ execution_id: executionId }),
        expect.objectContaining({ execution_id: silent }),
      ]),
    );
    expect(hooks.received.map((received) => received.id)).toContain(id);
  });

  test.each([
    ['without detach', { callback: { url: 'https://hooks.example.com/', secret } }, 'body.callback'],
    [
      'to a private address',
      { detach: true, callback: { url: 'https://10.0.0.1/', secret } },
      'body.callback.url',
    ],
  ])('%s is refused, and nobody is asked', async (_, more, path) => {
    expect(problemIn(await post('add', more)).violations?.[0]?.path).toBe(path);
    const listed = await api('GET', '/v1/approvals', { token: await token('bob') });
    expect(listed.json).toEqual({ approvals: [] });
  });
});
