/** Webhooks: who is told what, signed, and never in the way of what they tell of. */
import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { newId } from '../../../shared/ids.ts';
import {
  CreatedWebhookSchema,
  CreateWebhookSchema,
  WebhookListSchema,
  WebhookPingSchema,
} from '../../../shared/webhook.ts';
import { createApp } from '../../../worker/app.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import type { Env } from '../../../worker/env.ts';
import { sealWebhookSecrets } from '../../../worker/webhooks/secrets.ts';
import { newWebhookSecret } from '../../../worker/webhooks/signature.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api, problemIn } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { ORIGIN } from '../issuer-bindings.ts';
import {
  at,
  create,
  DAY_MS,
  host,
  internet,
  open,
  receiver,
  shell,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';
import { isSignedBy, Receiver } from './receiver.ts';

useHookedTenant();

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
    await eventually(() => expect(receiver.received).toHaveLength(1));
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
    await eventually(() => expect(receiver.of('session.destroyed')).toHaveLength(1));
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
    await eventually(() => expect(receiver.received).toHaveLength(1));
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
    await eventually(() => expect(receiver.received).toHaveLength(1));
    expect(receiver.received[0]?.event).toMatchObject({
      type: 'execution.finished',
      data: { session_id: red },
    });
    await api('DELETE', `/v1/sessions/${blue}`, { token: await token() });
    await api('DELETE', `/v1/sessions/${red}`, { token: await token('bob') });
    expect(others.received).toEqual([]);
    expect(receiver.received).toHaveLength(1);
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
    await eventually(() => expect(receiver.received).toHaveLength(1));
    const both = at(receiver.received, 0);
    expect(await Promise.all([former, secret].map((one) => isSignedBy(one, both)))).toEqual([true, true]);
    const { secret: last } = await rotate({ former_secret_s: 0 });
    await shell(sessionId);
    await eventually(() => expect(receiver.received).toHaveLength(2));
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
    await eventually(() => expect(receiver.of('session.paused')).toHaveLength(1));
    expect(receiver.of('execution.finished')).toHaveLength(1);
    expect(receiver.of('session.created')).toHaveLength(0);
  });
});
