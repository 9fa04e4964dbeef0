/** A tenant whose webhooks and callbacks reach a receiver of the test, and whose time the test sets. */
import { runDurableObjectAlarm } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { type Event, EventSchema } from '../../../shared/event.ts';
import { ExecutionSchema } from '../../../shared/execution.ts';
import { newId } from '../../../shared/ids.ts';
import { SessionSchema } from '../../../shared/session.ts';
import { CreatedWebhookSchema, WebhookSchema } from '../../../shared/webhook.ts';
import type { HostDouble, HostDoubleOptions } from '../../fixtures/host-double/host-double.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { api } from '../harness/api.ts';
import { eventually } from '../harness/eventually.ts';
import { connectFakeHost } from '../harness/fake-host.ts';
import { Internet } from '../sources/stand-ins.ts';
import { type Received, Receiver } from './receiver.ts';

export let host: HostDouble;
export let internet: Internet;
export let receiver: Receiver;
export let tenant: string;
let tenants = 0;
/** How far the time of the test is ahead. */
let aheadMs = 0;

export const token = (sub = 'alice', of = tenant) => tokenOf({ claims: { tenant: of, sub } });

export async function create(body: object = {}, of = tenant) {
  const answer = await api('POST', '/v1/webhooks', {
    token: await token('alice', of),
    body: { url: receiver.url, ...body },
  });
  expect(answer.status, answer.text).toBe(201);
  return CreatedWebhookSchema.parse(answer.json);
}

export async function read(webhookId: string) {
  const answer = await api('GET', `/v1/webhooks/${webhookId}`, { token: await token() });
  return WebhookSchema.parse(answer.json);
}

export async function open(body: object = {}, sub = 'alice'): Promise<string> {
  const made = await api('POST', '/v1/sessions', { token: await token(sub), body });
  return SessionSchema.parse(made.json).session_id;
}

export async function shell(sessionId: string, more: object = {}) {
  const body = { tool_name: 'shell', arguments: { command: 'x' }, ...more };
  const answer = await api('POST', `/v1/sessions/${sessionId}/execute`, { token: await token(), body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return ExecutionSchema.parse(answer.json);
}

export function at(received: readonly Received[], index: number): Received {
  const found = received[index];
  if (found === undefined) throw new Error(`there is no message ${index}`);
  return found;
}

export function finishedEvent(sessionId: string, n: number): Event {
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
export async function sendEvents(sessionId: string, events: readonly Event[]): Promise<void> {
  const outgoing = events.map((event) => ({ event, callback: null }));
  const origin = { kind: 'session', sessionId } as const;
  await env.NOTICES.send(
    { kind: 'events', tenant, origin, labels: {}, events: outgoing },
    { contentType: 'json' },
  );
}

export function passTime(ms: number): void {
  vi.useRealTimers();
  aheadMs += ms;
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs });
}

/** So much later the object looks at what is due. */
export async function later(ms: number): Promise<void> {
  passTime(ms);
  await runDurableObjectAlarm(env.WEBHOOKS.get(env.WEBHOOKS.idFromName(tenant)));
}

export const DAY_MS = 86_400_000;

/** Sets it up before each test of a file. */
export function useHookedTenant(options: HostDoubleOptions = {}): void {
  beforeEach(async () => {
    aheadMs = 0;
    tenants += 1;
    tenant = `hooked-${tenants}`;
    internet = new Internet();
    internet.start();
    receiver = new Receiver(internet, `hooks-${tenants}.example.com`);
    host = await connectFakeHost(options);
  });

  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
    host.close();
  });
}

/** Of a message whose first try was answered with an error: it comes once more, under the same id. */
export async function expectTriedAgain(): Promise<void> {
  await eventually(() => expect(receiver.received).toHaveLength(1));
  await eventually(async () => {
    await later(10_000);
    expect(receiver.received).toHaveLength(2);
  });
  expect(at(receiver.received, 0).id).toBe(at(receiver.received, 1).id);
}
