/** Webhooks and callbacks: who is told what, signed, tried again, and never in the way of what they tell of. */
import { createExecutionContext, runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ProgramSchema } from '../../../shared/code-mode.ts';
import { type Event, EventSchema } from '../../../shared/event.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { isTerminal } from '../../../shared/lifecycle.ts';
import { SessionSchema } from '../../../shared/session.ts';
import {
  CreatedWebhookSchema,
  CreateWebhookSchema,
  MAX_WAITING_DELIVERIES,
  WebhookListSchema,
  WebhookPingSchema,
  WebhookSchema,
} from '../../../shared/webhook.ts';
import { WorkflowSchema } from '../../../shared/workflow.ts';
import { createApp } from '../../../worker/app.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import type { Env } from '../../../worker/env.ts';
import { MAX_ATTEMPTS, waitAfter } from '../../../worker/webhooks/schedule.ts';
import { sealWebhookSecrets } from '../../../worker/webhooks/secrets.ts';
import { newWebhookSecret } from '../../../worker/webhooks/signature.ts';
import type { HostDouble } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { SessionEventReader } from '../harness/session-events.ts';
import { ORIGIN } from '../issuer-bindings.ts';
import { Internet } from '../sources/stand-ins.ts';
import { isSignedBy, type Received, Receiver, silent } from './receiver.ts';

let host: HostDouble;
let internet: Internet;
let receiver: Receiver;
let tenant: string;
let tenants = 0;
/** How far the time of the test is ahead. */
let aheadMs = 0;

const token = (sub = 'alice', of = tenant) => tokenOf({ claims: { tenant: of, sub } });

beforeEach(async () => {
  aheadMs = 0;
  tenants += 1;
  tenant = `hooked-${tenants}`;
  internet = new Internet();
  internet.start();
  receiver = new Receiver(internet, `hooks-${tenants}.example.com`);
  host = await connectFakeHost();
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  host.close();
});

async function create(body: object = {}, of = tenant) {
  const answer = await api('POST', '/v1/webhooks', {
    token: await token('alice', of),
    body: { url: receiver.url, ...body },
  });
  expect(answer.status, answer.text).toBe(201);
  return CreatedWebhookSchema.parse(answer.json);
}

async function read(webhookId: string) {
  const answer = await api('GET', `/v1/webhooks/${webhookId}`, { token: await token() });
  return WebhookSchema.parse(answer.json);
}

async function open(body: object = {}, sub = 'alice'): Promise<string> {
  const made = await api('POST', '/v1/sessions', { token: await token(sub), body });
  return SessionSchema.parse(made.json).session_id;
}

async function shell(sessionId: string, more: object = {}) {
  const body = { tool_name: 'shell', arguments: { command: 'x' }, ...more };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await token(), body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return ExecutionSchema.parse(answer.json);
}

function at(received: readonly Received[], index: number): Received {
  const found = received[index];
  if (found === undefined) throw new Error(`there is no message ${index}`);
  return found;
}

function finishedEvent(sessionId: string, n: number): Event {
  const data = {
    session_id: sessionId,
    execution_id: newId('exe'),
    tool_name: 'shell',
    status: 'succeeded',
    exit_code: 0,
    signal: null,
    reason: null,
    error: null,
    state_lost: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
    started_at: null,
    finished_at: null,
    duration_ms: null,
  };
  const head = { id: newId('evt'), n, type: 'execution.finished', timestamp: new Date().toISOString() };
  return EventSchema.parse({ ...head, data });
}

/** In one message of the queue. */
async function sendEvents(sessionId: string, events: readonly Event[]): Promise<void> {
  const outgoing = events.map((event) => ({ event, callback: null }));
  const origin = { kind: 'session', sessionId } as const;
  await env.NOTICES.send(
    { kind: 'events', tenant, origin, labels: {}, events: outgoing },
    { contentType: 'json' },
  );
}

function passTime(ms: number): void {
  vi.useRealTimers();
  aheadMs += ms;
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs });
}

/** So much later the object looks at what is due. */
async function later(ms: number): Promise<void> {
  passTime(ms);
  await runDurableObjectAlarm(env.WEBHOOKS.get(env.WEBHOOKS.idFromName(tenant)));
}

const DAY_MS = 86_400_000;

describe('a webhook', () => {
  test('shows its secret once, and is found, listed, replaced and removed', async () => {
    const made = await create({ events: ['execution.finished'], labels: 'team=red', description: 'mine' });
    expect(made).toMatchObject({ status: 'active', enabled: true, last_error: null, waiting: 0 });
    const path = `/v1/webhooks/${made.webhook_id}`;
    for (const shown of [path, '/v1/webhooks']) {
      const answer = await api('GET', shown, { token: await token('bob') });
      expect(answer.text).toContain(made.webhook_id);
      expect(answer.text).not.toContain(made.secret);
    }
    const replaced = await api('PUT', path, {
      token: await token(),
      body: { url: receiver.url, enabled: false },
    });
    expect(replaced.json).toMatchObject({ status: 'disabled', events: null, labels: null, description: '' });
    expect((await api('DELETE', path, { token: await token() })).status).toBe(204);
    expect(problemIn(await api('GET', path, { token: await token() })).code).toBe('not_found');
    const left = await api('GET', '/v1/webhooks', { token: await token() });
    expect(WebhookListSchema.parse(left.json).webhooks).toEqual([]);
  });

  test('needs the scope, and a tenant has a bounded number', async () => {
    const bare = await tokenOf({ claims: { tenant, scope: 'webhooks:read sessions:write' } });
    const refused = await api('POST', '/v1/webhooks', { token: bare, body: { url: receiver.url } });
    expect(problemIn(refused).code).toBe('insufficient_scope');
    for (let count = 0; count < 32; count += 1) await create();
    const more = await api('POST', '/v1/webhooks', { token: await token(), body: { url: receiver.url } });
    expect(problemIn(more).code).toBe('quota_exceeded');
  });

  test('is one of 32 at most, also of those that are made at once', async () => {
    const bearer = await token();
    const answers = await Promise.all(
      Array.from({ length: 36 }, () =>
        api('POST', '/v1/webhooks', { token: bearer, body: { url: receiver.url } }),
      ),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(32);
    const listed = await api('GET', '/v1/webhooks', { token: bearer });
    expect(WebhookListSchema.parse(listed.json).webhooks).toHaveLength(32);
  });

  test('is told, though the only other one was removed while it was made', async () => {
    const former = await create();
    const { secretsKey } = await configurationOf(env);
    const webhookId = newId('whk');
    const secrets = await sealWebhookSecrets(
      secretsKey,
      { tenant, webhookId },
      { current: newWebhookSecret() },
    );
    const webhook = CreateWebhookSchema.parse({ url: receiver.url, events: ['execution.finished'] });
    const webhooks = env.WEBHOOKS.getByName(tenant);
    await Promise.all([
      webhooks.create({ tenant, webhookId, webhook, secrets }),
      webhooks.remove(tenant, former.webhook_id),
    ]);
    await shell(await open());
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
  });

  test.each([
    ['http://hooks.example.com/', 'https'],
    ['https://127.0.0.1/', 'a name, not an IP address'],
    ['https://2130706433/', 'a name, not an IP address'],
    ['https://[::1]/', 'a name, not an IP address'],
    ['https://169.254.169.254/latest', 'a name, not an IP address'],
    ['https://localhost/', 'a public name'],
    ['https://db.internal/', 'a public name'],
    ['https://metadata.google.internal/', 'a public name'],
    ['https://hooks.example.com:8443/', 'the port of https'],
    ['https://me:secret@hooks.example.com/', 'an address without user and password'],
    [`${ORIGIN}/v1/sessions`, 'an address that is not this gateway'],
    ['nowhere', 'an address'],
  ])('A59: is not told at %s', async (url, expected) => {
    for (const [method, path] of [
      ['POST', '/v1/webhooks'],
      ['PUT', `/v1/webhooks/${(await create()).webhook_id}`],
    ] as const) {
      const answer = await api(method, path, { token: await token(), body: { url } });
      expect(problemIn(answer)).toMatchObject({
        code: 'invalid_request',
        violations: [{ path: 'body.url', expected }],
      });
    }
    expect(internet.requests).toEqual([]);
  });

  test.each([
    ['HTTP_TOOL_ORIGINS', 400, 400],
    ['WEBHOOK_ORIGINS', 201, 202],
  ])('has an inner address only where the operator allows it: %s', async (binding, made, called) => {
    const url = 'http://hooks.internal:8080';
    const bindings: Env = { ...env, [binding]: JSON.stringify([url]) };
    const bearer = await token();
    const post = (path: string, body: object) =>
      createApp().request(
        path,
        {
          method: 'POST',
          headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
          body: JSON.stringify(body),
        },
        bindings,
        createExecutionContext(),
      );
    expect((await post('/v1/webhooks', { url })).status).toBe(made);
    const call = {
      tool_name: 'shell',
      arguments: { command: 'x' },
      detach: true,
      callback: { url, secret: newWebhookSecret() },
    };
    expect((await post(`/v1/sessions/${await open()}/execute`, call)).status).toBe(called);
  });

  test.each([
    [{ events: ['session.exploded'] }, 'body.events.0'],
    [{ events: [] }, 'body.events'],
    [{ labels: '=' }, 'body.labels'],
    [{ surprise: 1 }, 'body.surprise'],
  ])('is refused with %j', async (body, path) => {
    const answer = await api('POST', '/v1/webhooks', {
      token: await token(),
      body: { url: receiver.url, ...body },
    });
    expect(problemIn(answer).violations?.[0]?.path).toBe(path);
  });

  test('is told what happens, signed with its secret', async () => {
    const { secret } = await create();
    const sessionId = await open();
    const execution = await shell(sessionId);
    await api('DELETE', `/v1/sessions/${sessionId}`, { token: await token() });
    await vi.waitFor(() => expect(receiver.of('session.destroyed')).toHaveLength(1), { timeout: 10_000 });
    const types = new Set(receiver.received.map(({ event }) => event.type));
    expect([...types].toSorted()).toEqual([
      'execution.accepted',
      'execution.finished',
      'session.created',
      'session.destroyed',
    ]);
    for (const message of receiver.received) {
      expect(message.id).toBe(message.event.id);
      expect(await isSignedBy(secret, message)).toBe(true);
      expect(await isSignedBy(newWebhookSecret(), message)).toBe(false);
      expect(await isSignedBy(secret, { ...message, text: `${message.text} ` })).toBe(false);
    }
    expect(receiver.of('execution.finished')[0]?.event.data).toMatchObject({
      session_id: sessionId,
      execution_id: execution.execution_id,
      status: 'succeeded',
    });
  });

  test('is told the name of an exception, and nothing of what it says', async () => {
    await create({ events: ['execution.finished'] });
    host.script = (execution) =>
      execution.finish({
        status: 'failed',
        exit_code: 1,
        error: { name: `Leak${'k'.repeat(80)}`, message: 'the guest said this', traceback: 'and that' },
      });
    await shell(await open());
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
    const { event, text } = at(receiver.received, 0);
    expect(event.data).toMatchObject({ status: 'failed', error: { name: `Leak${'k'.repeat(59)}…` } });
    expect(text).not.toMatch(/the guest said this|and that/);
  });

  test('hears of the types and the sessions that it asked for, and of nothing of other tenants', async () => {
    const others = new Receiver(internet, 'others.example.com');
    await create({ events: ['execution.finished'], labels: 'team=red,env' });
    await create({ url: others.url }, `${tenant}-other`);
    const red = await open({ labels: { team: 'red', env: 'any' } }, 'bob');
    const blue = await open({ labels: { team: 'blue', env: 'any' } });
    await shell(blue);
    const body = { tool_name: 'shell', arguments: { command: 'x' } };
    await api('POST', `/v1/sessions/${red}/execute`, { token: await token('bob'), body });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
    expect(receiver.received[0]?.event).toMatchObject({
      type: 'execution.finished',
      data: { session_id: red },
    });
    await api('DELETE', `/v1/sessions/${blue}`, { token: await token() });
    await api('DELETE', `/v1/sessions/${red}`, { token: await token('bob') });
    expect(others.received).toEqual([]);
    expect(receiver.received).toHaveLength(1);
  });

  test('is tried again after a 500 with the same id, and then is as it was', async () => {
    const { webhook_id, secret } = await create({ events: ['execution.finished'] });
    receiver.answers = [() => new Response('a secret of theirs', { status: 500 })];
    await shell(await open());
    await vi.waitFor(async () => expect((await read(webhook_id)).waiting).toBe(1), { timeout: 10_000 });
    const failed = await read(webhook_id);
    expect(failed).toMatchObject({
      status: 'active',
      last_error: { message: 'it was answered 500', status_code: 500 },
    });
    await later(10_000);
    await vi.waitFor(async () => expect((await read(webhook_id)).waiting).toBe(0), { timeout: 10_000 });
    expect(await read(webhook_id)).toMatchObject({ status: 'active', last_error: null });
    const ids = receiver.received.map(({ id }) => id);
    expect(ids).toEqual([ids[0], ids[0]]);
    expect(await isSignedBy(secret, at(receiver.received, 0))).toBe(true);
  });

  test('is failing when a message was given up, and active again with the next that arrives', async () => {
    const { webhook_id } = await create({ events: ['execution.finished'] });
    receiver.always = () => new Response(null, { status: 503 });
    const sessionId = await open();
    await shell(sessionId);
    let lastAt: string | undefined;
    for (let attempts = 1; attempts <= MAX_ATTEMPTS; attempts += 1) {
      if (attempts > 1) await later(waitAfter(attempts - 1, 1) ?? 0);
      await vi.waitFor(
        async () => {
          const { last_error } = await read(webhook_id);
          expect(last_error?.at).toBeDefined();
          expect(last_error?.at).not.toBe(lastAt);
          lastAt = last_error?.at;
        },
        { timeout: 10_000 },
      );
      expect(receiver.received).toHaveLength(attempts);
    }
    expect(await read(webhook_id)).toMatchObject({ status: 'failing', waiting: 0 });
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(1);
    receiver.always = undefined;
    const ping = await api('POST', `/v1/webhooks/${webhook_id}/ping`, { token: await token() });
    expect(WebhookPingSchema.parse(ping.json)).toMatchObject({ delivered: true, status_code: 204 });
    expect(await read(webhook_id)).toMatchObject({ status: 'active', last_error: null });
  }, 60_000);

  test('that fails again and again is tried once in half a minute, however much waits', async () => {
    const sessionId = await open();
    const { webhook_id } = await create({ events: ['execution.finished'] });
    const witness = new Receiver(internet, 'witness.example.com');
    await create({ url: witness.url, events: ['execution.finished'] });
    receiver.always = () => new Response(null, { status: 503 });
    const failed = { delivered: false, statusCode: 503, message: 'failed', isGone: false } as const;
    await env.WEBHOOKS.getByName(tenant).settle(
      tenant,
      Array.from({ length: 120 }, (_, index) => ({
        event: finishedEvent(sessionId, index + 1),
        target: { webhookId: webhook_id },
        outcome: index < 5 ? failed : 'held',
      })),
    );
    await later(60_000);
    for (let count = 0; count < 3; count += 1) await later(1);
    await sendEvents(sessionId, [finishedEvent(sessionId, 121)]);
    await vi.waitFor(() => expect(witness.received).toHaveLength(1), { timeout: 10_000 });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
    await later(30_000);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2), { timeout: 10_000 });
  });

  test('is not sent what has waited for more than a day', async () => {
    const sessionId = await open();
    const { webhook_id } = await create({ events: ['execution.finished'] });
    const target = { webhookId: webhook_id };
    const settled = [1, 2].map((n) => ({
      event: finishedEvent(sessionId, n),
      target,
      outcome: 'held' as const,
    }));
    await env.WEBHOOKS.getByName(tenant).settle(tenant, settled);
    expect(await read(webhook_id)).toMatchObject({ status: 'active', waiting: 2 });
    await later(31 * 3_600_000);
    expect(await read(webhook_id)).toMatchObject({ status: 'failing', waiting: 0 });
    expect(receiver.received).toEqual([]);
  });

  test('has room for what waits for it, however many callbacks wait', async () => {
    const sessionId = await open();
    const { webhook_id } = await create({ events: ['execution.finished'] });
    const webhooks = env.WEBHOOKS.getByName(tenant);
    const callback = { url: receiver.url, secret: 'sealed', holder: 'holder' };
    // A line for each that is given up; and none of them is due before the test is over.
    vi.spyOn(console, 'warn').mockImplementation(() => {});
    passTime(3_600_000);
    for (let chunk = 0; chunk < 4; chunk += 1) {
      const settled = Array.from({ length: MAX_WAITING_DELIVERIES / 4 }, (_, index) => ({
        event: finishedEvent(sessionId, index + 1),
        target: { callback },
        outcome: 'held' as const,
      }));
      await webhooks.settle(tenant, settled);
    }
    const event = finishedEvent(sessionId, 1);
    await webhooks.settle(tenant, [{ event, target: { webhookId: webhook_id }, outcome: 'held' }]);
    expect(await read(webhook_id)).toMatchObject({ status: 'active', waiting: 1 });
  }, 60_000);

  test('is disabled by a 410, with all that waits for it', async () => {
    const { webhook_id } = await create({ events: ['execution.finished'] });
    receiver.answers = [() => new Response(null, { status: 410 })];
    const sessionId = await open();
    await shell(sessionId);
    await vi.waitFor(async () => expect((await read(webhook_id)).status).toBe('disabled'), {
      timeout: 10_000,
    });
    expect(await read(webhook_id)).toMatchObject({ enabled: false, waiting: 0 });
    const witness = new Receiver(internet, 'witness.example.com');
    await create({ url: witness.url, events: ['execution.finished'] });
    await shell(sessionId);
    await vi.waitFor(() => expect(witness.received).toHaveLength(1), { timeout: 10_000 });
    expect(receiver.received).toHaveLength(1);
  });

  test('is followed nowhere', async () => {
    const { webhook_id } = await create({ events: ['execution.finished'] });
    receiver.answers = [
      () => new Response(null, { status: 307, headers: { location: 'https://169.254.169.254/' } }),
    ];
    await shell(await open());
    await vi.waitFor(
      async () =>
        expect((await read(webhook_id)).last_error?.message).toBe(
          'it was answered 307: no redirect is followed',
        ),
      { timeout: 10_000 },
    );
    expect(internet.requests.map(({ url }) => new URL(url).host)).toEqual([receiver.host]);
  });

  test('that hangs keeps neither the session nor another webhook waiting', async () => {
    const slow = new Receiver(internet, 'slow.example.com');
    slow.always = silent;
    await create({ url: slow.url, events: ['execution.finished'] });
    await create({ events: ['execution.finished'] });
    const sessionId = await open();
    const sinceMs = performance.now();
    for (let count = 0; count < 5; count += 1) await shell(sessionId);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(5), { timeout: 9_000 });
    expect(performance.now() - sinceMs).toBeLessThan(9_000);
    expect(slow.received.length).toBeGreaterThan(0);
  }, 20_000);

  test('that takes its time is sent later what it had no time for', async () => {
    const sessionId = await open();
    const { webhook_id } = await create({ events: ['execution.finished'] });
    receiver.always = () => {
      // Longer than a batch may take.
      passTime(16_000);
      return new Response(null, { status: 204 });
    };
    const events = Array.from({ length: 8 }, (_, index) => finishedEvent(sessionId, index + 1));
    await sendEvents(sessionId, events);
    await vi.waitFor(async () => expect((await read(webhook_id)).waiting).toBe(4), { timeout: 10_000 });
    expect(receiver.received).toHaveLength(4);
    receiver.always = undefined;
    await later(30_000);
    await vi.waitFor(async () => expect((await read(webhook_id)).waiting).toBe(0), { timeout: 10_000 });
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(8);
  });

  test('is signed with both secrets while a rotation goes on, and then with the new one', async () => {
    const { webhook_id, secret: former } = await create({ events: ['execution.finished'] });
    const rotate = async (body: object) => {
      const answer = await api('POST', `/v1/webhooks/${webhook_id}/secret`, { token: await token(), body });
      return CreatedWebhookSchema.parse(answer.json);
    };
    const { secret, former_secret_until } = await rotate({});
    expect(Date.parse(former_secret_until ?? '') - Date.now()).toBeGreaterThan(DAY_MS - 60_000);
    const sessionId = await open();
    await shell(sessionId);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
    const both = at(receiver.received, 0);
    expect(await Promise.all([former, secret].map((one) => isSignedBy(one, both)))).toEqual([true, true]);
    const { secret: last } = await rotate({ former_secret_s: 0 });
    await shell(sessionId);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2), { timeout: 10_000 });
    const alone = at(receiver.received, 1);
    expect(await Promise.all([secret, last].map((one) => isSignedBy(one, alone)))).toEqual([false, true]);
  });

  test('says what came of a ping', async () => {
    const { webhook_id, secret } = await create();
    receiver.answers = [() => new Response(null, { status: 404 })];
    const ping = async () => {
      const answer = await api('POST', `/v1/webhooks/${webhook_id}/ping`, { token: await token() });
      return WebhookPingSchema.parse(answer.json);
    };
    expect(await ping()).toMatchObject({ delivered: false, status_code: 404, error: 'it was answered 404' });
    expect(await ping()).toMatchObject({ delivered: true, status_code: 204, error: null });
    const second = at(receiver.received, 1);
    expect(await isSignedBy(secret, second)).toBe(true);
    expect(second.event).toMatchObject({ type: 'webhook.ping', data: { webhook_id } });
  });

  test('hears, with the session’s next state, also of what happened before the session knew of it', async () => {
    const sessionId = await open();
    await create();
    await shell(sessionId);
    const paused = await api('POST', `/v1/sessions/${sessionId}/pause`, { token: await token() });
    expect(paused.status).toBe(200);
    await vi.waitFor(() => expect(receiver.of('session.paused')).toHaveLength(1), { timeout: 10_000 });
    expect(receiver.of('execution.finished')).toHaveLength(1);
    expect(receiver.of('session.created')).toHaveLength(0);
  });
});

describe('a callback', () => {
  const secret = newWebhookSecret();

  test('tells the end of a detached call, and of no other', async () => {
    const sessionId = await open();
    const detached = await shell(sessionId, { detach: true, callback: { url: receiver.url, secret } });
    await shell(sessionId);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
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

  test('is tried again like any message', async () => {
    receiver.answers = [() => new Response(null, { status: 500 })];
    const sessionId = await open();
    await shell(sessionId, { detach: true, callback: { url: receiver.url, secret } });
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
    await vi.waitFor(
      async () => {
        await later(10_000);
        expect(receiver.received).toHaveLength(2);
      },
      { timeout: 10_000 },
    );
    const ids = receiver.received.map(({ id }) => id);
    expect(ids[0]).toBe(ids[1]);
  });

  test('tells the end of a detached program', async () => {
    const sessionId = await open();
    const answer = await api('POST', `/v1/sessions/${sessionId}/programs`, {
      token: await token(),
      body: { language: 'python', code: '1', detach: true, callback: { url: receiver.url, secret } },
    });
    const { program_id } = ProgramSchema.parse(answer.json);
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
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
    await vi.waitFor(() => expect([receiver.received.length, hooks.received.length]).toEqual([1, 1]), {
      timeout: 20_000,
    });
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
  await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 10_000 });
  const [message] = receiver.received;
  const reader = await SessionEventReader.open(sessionId, await token());
  expect((await reader.until('execution.finished')).event).toEqual(message?.event);
  await reader.cancel();
});
