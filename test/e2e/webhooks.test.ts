/** Webhooks on the real stack: a real receiver, the real queue, and workerd killed between an event and its delivery. */
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Event, EventSchema } from '../../shared/event.ts';
import { ExecutionSchema } from '../../shared/execution.ts';
import { SCOPES } from '../../shared/scopes.ts';
import { CreatedWebhookSchema, WebhookSchema } from '../../shared/webhook.ts';
import { PATIENCE_MS } from '../patience.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

interface Message {
  event: Event;
  headers: IncomingMessage['headers'];
  text: string;
  /** Null where it was left without one. */
  answer: number | null;
}

let server: Server;
let origin = '';
const messages: Message[] = [];
/** What the next requests are answered; then 204. Null: nothing at all. */
const answers: (number | null)[] = [];
const hanging: ServerResponse[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      const [answer = 204] = answers.splice(0, 1);
      const event = EventSchema.parse(JSON.parse(text));
      messages.push({ event, headers: request.headers, text, answer });
      if (answer === null) hanging.push(response);
      else response.writeHead(answer).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  answers.length = 0;
  for (const response of hanging.splice(0)) response.destroy();
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const stack = useStack(
  () => ({}),
  async () => ({ WEBHOOK_ORIGINS: JSON.stringify([origin]) }),
);

async function create(events: Event['type'][]) {
  const body = { url: `${origin}/hook`, events };
  return (await stack().api.json(CreatedWebhookSchema, 'POST', '/v1/webhooks', { body })).value;
}

function isSigned(secret: string, { headers, text }: Message): boolean {
  const signed = [headers['webhook-id'], headers['webhook-timestamp'], text].join('.');
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  return headers['webhook-signature'] === `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
}

function about(executionId: string): Message[] {
  return messages.filter(
    ({ event }) => 'execution_id' in event.data && event.data.execution_id === executionId,
  );
}

describe('a webhook', () => {
  test('is told of an execution, tried again after a 500, with the same id and its signature', async () => {
    const { webhook_id, secret } = await create(['execution.finished']);
    answers.push(500);
    const session = await stack().open();
    const { execution_id } = await session.py('6 * 7');
    const [first, second] = await until('it is told twice', PATIENCE_MS, () => {
      const told = about(execution_id);
      return told.length >= 2 ? told : undefined;
    });
    if (first === undefined || second === undefined) throw new Error('nothing came');
    expect(first.headers['webhook-id']).toBe(first.event.id);
    expect(second.headers['webhook-id']).toBe(first.event.id);
    expect([isSigned(secret, first), isSigned(secret, second)]).toEqual([true, true]);
    expect(second.event).toMatchObject({ type: 'execution.finished', data: { status: 'succeeded' } });
    const path = `/v1/webhooks/${webhook_id}`;
    await until('it is as it was', PATIENCE_MS, async () => {
      const { value } = await stack().api.json(WebhookSchema, 'GET', path);
      return value.waiting === 0 && value.last_error === null ? true : undefined;
    });
    await stack().api.request('DELETE', path);
  }, 300_000);

  test('misses nothing when workerd is killed while its messages are on the way', async () => {
    const { webhook_id } = await create(['execution.finished']);
    const session = await stack().open();
    // The receiver takes them and says nothing, so none of them counts as delivered.
    answers.push(...Array.from({ length: 20 }, () => null));
    const ran = [await session.sh('true'), await session.sh('true'), await session.sh('true')];
    await until('the first is on its way', PATIENCE_MS, () => (hanging.length > 0 ? true : undefined));
    answers.length = 0;
    await stack().restartEdge();
    for (const { execution_id } of ran) {
      const told = await until(`${execution_id} is told`, 2 * PATIENCE_MS, () => {
        const all = about(execution_id);
        return all.some(({ answer }) => answer === 204) ? all : undefined;
      });
      expect(new Set(told.map(({ event }) => event.id)).size).toBe(1);
    }
    expect(ran.some(({ execution_id }) => about(execution_id).some(({ answer }) => answer === null))).toBe(
      true,
    );
    await until('all of it is in good hands', PATIENCE_MS, async () => {
      const path = `/v1/webhooks/${webhook_id}`;
      const { value } = await stack().api.json(WebhookSchema, 'GET', path);
      return value.waiting === 0 && value.last_success_at !== null ? true : undefined;
    });
    await stack().api.request('DELETE', `/v1/webhooks/${webhook_id}`);
  }, 300_000);

  test('of another tenant hears nothing', async () => {
    const other = await stack().clientWith({
      claims: { tenant: 'somebody-else', scope: Object.keys(SCOPES).join(' ') },
    });
    const body = { url: `${origin}/hook` };
    const { value } = await other.json(CreatedWebhookSchema, 'POST', '/v1/webhooks', { body });
    const { webhook_id: witness } = await create(['session.destroyed']);
    const session = await stack().open();
    await session.sh('true');
    const before = messages.length;
    await session.delete();
    await until('the witness is told', PATIENCE_MS, () => (messages.length > before ? true : undefined));
    expect(messages.slice(before).map(({ event }) => event.type)).toEqual(['session.destroyed']);
    const seen = await other.json(WebhookSchema, 'GET', `/v1/webhooks/${value.webhook_id}`);
    expect(seen.value).toMatchObject({ last_success_at: null, waiting: 0 });
    await other.request('DELETE', `/v1/webhooks/${value.webhook_id}`);
    await stack().api.request('DELETE', `/v1/webhooks/${witness}`);
  }, 300_000);
});

describe('a callback', () => {
  test('tells the end of a detached call, and workerd killed in the middle of it does not keep it from that', async () => {
    const secret = `whsec_${Buffer.alloc(32, messages.length + 1).toString('base64')}`;
    const session = await stack().open();
    const body = {
      tool_name: 'shell',
      arguments: { command: 'sleep 4; echo done' },
      detach: true,
      callback: { url: `${origin}/called`, secret },
    };
    const accepted = await stack().api.request('POST', `${session.path}/execute`, { body });
    expect(accepted.status, accepted.text).toBe(202);
    const { execution_id } = ExecutionSchema.parse(JSON.parse(accepted.text));
    await stack().restartEdge();
    const [told] = await until('it is called', 2 * PATIENCE_MS, () => {
      const all = about(execution_id);
      return all.length > 0 ? all : undefined;
    });
    if (told === undefined) throw new Error('nothing came');
    expect(isSigned(secret, told)).toBe(true);
    expect(told.event).toMatchObject({ type: 'execution.finished', data: { status: 'succeeded' } });
  }, 300_000);

  test('to a loopback address that nobody allowed is refused', async () => {
    const session = await stack().open();
    const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
    for (const url of ['http://127.0.0.1:1/', 'https://localhost/', stack().api.url]) {
      const body = {
        tool_name: 'shell',
        arguments: { command: 'true' },
        detach: true,
        callback: { url, secret },
      };
      const answer = await stack().api.request('POST', `${session.path}/execute`, { body });
      expect([answer.status, answer.text.includes('body.callback.url')], url).toEqual([400, true]);
    }
  });
});
