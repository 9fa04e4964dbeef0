import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import { WorkflowSchema } from '../../../shared/workflow.ts';
import { sessionObjectName } from '../../../worker/objects/session-name.ts';
import { MAX_EVENT_PENDING_MS } from '../../../worker/webhooks/message.ts';
import { newWebhookSecret } from '../../../worker/webhooks/signature.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { STOCK_PRICE } from '../harness/example-tools.ts';
import { SessionEventReader } from '../harness/session-events.ts';
import { ORIGIN } from '../issuer-bindings.ts';
import {
  at,
  create,
  internet,
  later,
  open,
  passTime,
  receiver,
  shell,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';
import { isSignedBy, Receiver } from './receiver.ts';

useHookedTenant();

describe('a callback', () => {
  const secret = newWebhookSecret();

  test('tells the end of a detached call, and of no other', async () => {
    const sessionId = await open();
    const detached = await shell(sessionId, { detach: true, callback: { url: receiver.url, secret } });
    await shell(sessionId);
    await eventually(() => expect(receiver.received).toHaveLength(1));
    const message = at(receiver.received, 0);
    expect(await isSignedBy(secret, message)).toBe(true);
    expect(message.event).toMatchObject({
      type: 'execution.finished',
      data: { execution_id: detached.execution_id, session_id: sessionId, status: 'succeeded' },
    });
    const shown = await api('GET', `/v1/sessions/${sessionId}/executions/${detached.execution_id}`, {
      token: await token(),
    });
    expect(shown.text).not.toContain(secret);
    expect(shown.text).not.toContain(receiver.host);
  });

  test('tells the end of a detached call that the gateway made', async () => {
    internet.host('prices.example.com', async () => Response.json({ price: 7 }));
    expect((await api('POST', '/v1/tools', { token: await token(), body: STOCK_PRICE })).status).toBe(201);
    const sessionId = await open();
    const detached = await shell(sessionId, {
      tool_name: STOCK_PRICE.name,
      arguments: { symbol: 'x' },
      detach: true,
      callback: { url: receiver.url, secret },
    });
    await eventually(() => expect(receiver.received).toHaveLength(1));
    expect(at(receiver.received, 0).event).toMatchObject({
      type: 'execution.finished',
      data: { execution_id: detached.execution_id, tool_name: STOCK_PRICE.name, status: 'succeeded' },
    });
  });

  test('is tried again like any message', async () => {
    receiver.answers = [() => new Response(null, { status: 500 })];
    const sessionId = await open();
    await shell(sessionId, { detach: true, callback: { url: receiver.url, secret } });
    await eventually(() => expect(receiver.received).toHaveLength(1));
    await eventually(async () => {
      await later(10_000);
      expect(receiver.received).toHaveLength(2);
    });
    const ids = receiver.received.map(({ id }) => id);
    expect(ids[0]).toBe(ids[1]);
  });

  test('that cannot leave for three days is let go, and the session’s events are all there, numbered on', async () => {
    const sessionId = await open();
    const send = vi.spyOn(env.NOTICES, 'send').mockRejectedValue(new Error('down'));
    await shell(sessionId, { detach: true, callback: { url: receiver.url, secret } });
    const object = env.SESSION.get(env.SESSION.idFromName(sessionObjectName(tenant, sessionId)));
    const before = await SessionEventReader.open(sessionId, await token());
    await before.until('execution.finished');
    await before.cancel();
    await runInDurableObject(object, (_object, { storage }) => {
      storage.sql.exec('UPDATE session_event SET atMs = atMs - ?', MAX_EVENT_PENDING_MS + 1_000);
    });
    await evictDurableObject(object);
    await runDurableObjectAlarm(object);
    passTime(60_000);
    await runDurableObjectAlarm(object);
    await evictDurableObject(object);
    send.mockRestore();
    await shell(sessionId);
    const after = await SessionEventReader.open(sessionId, await token());
    await after.until('execution.finished');
    await after.until('execution.finished');
    await after.cancel();
    expect(after.seen.map(({ id }) => id)).toEqual(['1', '2', '3', '4', '5']);
    expect(receiver.received).toEqual([]);
  });

  test('tells the end of a detached program', async () => {
    const sessionId = await open();
    const answer = await api('POST', `/v1/sessions/${sessionId}/programs`, {
      token: await token(),
      body: { language: 'python', code: '1', detach: true, callback: { url: receiver.url, secret } },
    });
    const { program_id } = ProgramSchema.parse(answer.json);
    await eventually(() => expect(receiver.received).toHaveLength(1));
    expect(receiver.received[0]?.event.data).toMatchObject({ execution_id: program_id });
  });

  test('tells the end of a workflow, as webhooks do', async () => {
    const hooks = new Receiver(internet, 'workflows.example.com');
    await create({ url: hooks.url, events: ['workflow.finished'] });
    const answer = await api('POST', '/v1/workflows', {
      token: await token(),
      body: {
        name: 'nightly',
        tasks: { one: { tool_name: 'shell', arguments: { command: 'x' } } },
        callback: { url: receiver.url, secret },
      },
    });
    const { workflow_id } = WorkflowSchema.parse(answer.json);
    await eventually(() => expect([receiver.received.length, hooks.received.length]).toEqual([1, 1]));
    const message = at(receiver.received, 0);
    expect(await isSignedBy(secret, message)).toBe(true);
    expect(message.event).toMatchObject({
      type: 'workflow.finished',
      data: { workflow_id, name: 'nightly', status: 'succeeded', reason: null },
    });
    expect(hooks.received[0]?.id).toBe(message.id);
  }, 30_000);

  const good = { url: 'https://hooks.example.com/hook', secret };
  test.each([
    ['without detach', { callback: good }, 'body.callback'],
    [
      'to a private address',
      { detach: true, callback: { ...good, url: 'https://10.0.0.1/' } },
      'body.callback.url',
    ],
    [
      'to this gateway',
      { detach: true, callback: { ...good, url: `${ORIGIN}/v1/execute` } },
      'body.callback.url',
    ],
    ['without a secret', { detach: true, callback: { url: good.url } }, 'body.callback.secret'],
    [
      'with a short secret',
      { detach: true, callback: { ...good, secret: 'whsec_AAAA' } },
      'body.callback.secret',
    ],
    ['with more than that', { detach: true, callback: { ...good, headers: {} } }, 'body.callback.headers'],
  ])('%s is refused, and nothing runs', async (_name, more, path) => {
    const sessionId = await open();
    const call = { tool_name: 'shell', arguments: { command: 'x' }, ...more };
    const program = { language: 'python', code: '1', ...more };
    for (const [route, body] of [
      ['execute', call],
      ['programs', program],
    ] as const) {
      const answer = await api('POST', `/v1/sessions/${sessionId}/${route}`, { token: await token(), body });
      expect(problemIn(answer).violations?.[0]?.path).toBe(path);
    }
    const listed = await api('GET', `/v1/sessions/${sessionId}/executions`, { token: await token() });
    expect(listed.json).toMatchObject({ executions: [] });
  });
});

test('a message says nothing that the session’s own stream does not', async () => {
  await create({ events: ['execution.finished'] });
  const sessionId = await open();
  const { status } = await shell(sessionId);
  expect(isTerminal(status)).toBe(true);
  await eventually(() => expect(receiver.received).toHaveLength(1));
  const [message] = receiver.received;
  const reader = await SessionEventReader.open(sessionId, await token());
  expect((await reader.until('execution.finished')).event).toEqual(message?.event);
  await reader.cancel();
});
