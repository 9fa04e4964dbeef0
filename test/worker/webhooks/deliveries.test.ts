import { env } from 'cloudflare:workers';
import { describe, expect, test, vi } from 'vitest';
import { MAX_WAITING_DELIVERIES, WebhookPingSchema } from '../../../shared/webhook.ts';
import { MAX_ATTEMPTS, waitAfter } from '../../../worker/webhooks/schedule.ts';
import { PATIENCE_MS } from '../../patience.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import {
  at,
  create,
  finishedEvent,
  internet,
  later,
  open,
  passTime,
  read,
  receiver,
  sendEvents,
  shell,
  tenant,
  token,
  useHookedTenant,
} from './hooked-tenant.ts';
import { isSignedBy, Receiver, silent } from './receiver.ts';

useHookedTenant();

describe('a webhook', () => {
  test('is tried again after a 500 with the same id, and then is as it was', async () => {
    const { webhook_id, secret } = await create({ events: ['execution.finished'] });
    receiver.answers = [() => new Response('a secret of theirs', { status: 500 })];
    await shell(await open());
    await eventually(async () => expect((await read(webhook_id)).waiting).toBe(1));
    const failed = await read(webhook_id);
    expect(failed).toMatchObject({
      status: 'active',
      last_error: { message: 'it was answered 500', status_code: 500 },
    });
    await later(10_000);
    await eventually(async () => expect((await read(webhook_id)).waiting).toBe(0));
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
      await eventually(async () => {
        const { last_error } = await read(webhook_id);
        expect(last_error?.at).toBeDefined();
        expect(last_error?.at).not.toBe(lastAt);
        lastAt = last_error?.at;
      });
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
    await eventually(() => expect(witness.received).toHaveLength(1));
    await eventually(() => expect(receiver.received).toHaveLength(1));
    await later(30_000);
    await eventually(() => expect(receiver.received).toHaveLength(2));
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
    await eventually(async () => expect((await read(webhook_id)).status).toBe('disabled'));
    expect(await read(webhook_id)).toMatchObject({ enabled: false, waiting: 0 });
    const witness = new Receiver(internet, 'witness.example.com');
    await create({ url: witness.url, events: ['execution.finished'] });
    await shell(sessionId);
    await eventually(() => expect(witness.received).toHaveLength(1));
    expect(receiver.received).toHaveLength(1);
  });

  test('is followed nowhere', async () => {
    const { webhook_id } = await create({ events: ['execution.finished'] });
    receiver.answers = [
      () => new Response(null, { status: 307, headers: { location: 'https://169.254.169.254/' } }),
    ];
    await shell(await open());
    await eventually(async () =>
      expect((await read(webhook_id)).last_error?.message).toBe(
        'it was answered 307: no redirect is followed',
      ),
    );
    expect(internet.requests.map(({ url }) => new URL(url).host)).toEqual([receiver.host]);
  });

  test('that hangs keeps neither the session nor another webhook waiting', async () => {
    const slow = new Receiver(internet, 'slow.example.com');
    slow.always = silent;
    await create({ url: slow.url, events: ['execution.finished'] });
    await create({ events: ['execution.finished'] });
    const sessionId = await open();
    // It is not given up meanwhile: what waits for it waits in vain.
    const after = AbortSignal.timeout.bind(AbortSignal);
    vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => after(2 * PATIENCE_MS));
    for (let count = 0; count < 5; count += 1) await shell(sessionId);
    await eventually(() => expect(receiver.received).toHaveLength(5));
    expect(slow.received.length).toBeGreaterThan(0);
  });

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
    await eventually(async () => expect((await read(webhook_id)).waiting).toBe(4));
    expect(receiver.received).toHaveLength(4);
    receiver.always = undefined;
    await later(30_000);
    await eventually(async () => expect((await read(webhook_id)).waiting).toBe(0));
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(8);
  });
});
