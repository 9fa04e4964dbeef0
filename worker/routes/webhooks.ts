/** The webhooks of a tenant: make, show, replace and remove them, give one a new secret, try it. */
import { failure } from '../../shared/errors.ts';
import { EventSchema } from '../../shared/event.ts';
import { newId, WebhookIdSchema } from '../../shared/ids.ts';
import {
  CreatedWebhookSchema,
  CreateWebhookSchema,
  RotateWebhookSecretSchema,
  WebhookListSchema,
  WebhookPingSchema,
  WebhookSchema,
} from '../../shared/webhook.ts';
import { requireWebhookUrl } from '../calls/callback.ts';
import { notFound } from '../calls/own-session.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { SAFE, UNSAFE, webhookCalls } from '../objects/object-calls.ts';
import { emptyReply, reply } from '../routing/reply.ts';
import { defineRoute, type Exchange } from '../routing/route.ts';
import { webhookAddressRules } from '../tools/http/address.ts';
import { attempt } from '../webhooks/attempt.ts';
import { openWebhookSecrets, sealWebhookSecrets } from '../webhooks/secrets.ts';
import { newWebhookSecret } from '../webhooks/signature.ts';

const READ = { kind: 'tenant', scopes: ['webhooks:read'] } as const;
const WRITE = { kind: 'tenant', scopes: ['webhooks:write'] } as const;
const WEBHOOK = { description: 'The webhook', content: { 'application/json': WebhookSchema } };
/** Of two that rotate at once, one is first. */
const ROTATION_TRIES = 5;

const createWebhook = defineRoute({
  method: 'POST',
  path: '/v1/webhooks',
  operationId: 'createWebhook',
  summary: 'Have an address told what happens; it hears of the sessions of all subjects of the tenant',
  access: WRITE,
  body: CreateWebhookSchema,
  answers: {
    201: {
      description: 'The webhook; its secret is not shown again',
      content: { 'application/json': CreatedWebhookSchema },
      headers: ['Location'],
    },
  },
  errors: ['quota_exceeded'],
  handle: async (exchange, { body }) => {
    requireWebhookUrl(exchange, body.url, 'body.url');
    const { tenant } = exchange.principal;
    const [webhookId, secret] = [newId('whk'), newWebhookSecret()];
    const { secretsKey } = exchange.configuration;
    const secrets = await sealWebhookSecrets(secretsKey, { tenant, webhookId }, { current: secret });
    const made = await callsOf(exchange)(
      (stub) => stub.create({ tenant, webhookId, webhook: body, secrets }),
      UNSAFE,
    );
    return reply(201, { ...unwrap(made), secret }, { Location: `/v1/webhooks/${webhookId}` });
  },
});

const listWebhooks = defineRoute({
  method: 'GET',
  path: '/v1/webhooks',
  operationId: 'listWebhooks',
  summary: 'The webhooks of the tenant, oldest first',
  access: READ,
  answers: { 200: { description: 'All of them', content: { 'application/json': WebhookListSchema } } },
  errors: [],
  handle: async (exchange) =>
    reply(200, { webhooks: unwrap(await callsOf(exchange)((stub) => stub.list(), SAFE)) }),
});

const getWebhook = defineRoute({
  method: 'GET',
  path: '/v1/webhooks/{webhook_id}',
  operationId: 'getWebhook',
  summary: 'A webhook, and how it stands',
  access: READ,
  answers: { 200: WEBHOOK },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const webhookId = webhookIdOf(params.webhook_id);
    return reply(200, unwrap(await callsOf(exchange)((stub) => stub.find(webhookId), SAFE)));
  },
});

const replaceWebhook = defineRoute({
  method: 'PUT',
  path: '/v1/webhooks/{webhook_id}',
  operationId: 'replaceWebhook',
  summary: 'Put something else in the place of a webhook, also to enable it again; its secret stays',
  access: WRITE,
  body: CreateWebhookSchema,
  answers: { 200: WEBHOOK },
  errors: ['not_found'],
  handle: async (exchange, { params, body }) => {
    const webhookId = webhookIdOf(params.webhook_id);
    requireWebhookUrl(exchange, body.url, 'body.url');
    return reply(200, unwrap(await callsOf(exchange)((stub) => stub.replace(webhookId, body), SAFE)));
  },
});

const deleteWebhook = defineRoute({
  method: 'DELETE',
  path: '/v1/webhooks/{webhook_id}',
  operationId: 'deleteWebhook',
  summary: 'Remove a webhook, and what waits for it',
  access: WRITE,
  answers: { 204: { description: 'Removed' } },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const webhookId = webhookIdOf(params.webhook_id);
    const { tenant } = exchange.principal;
    unwrap(await callsOf(exchange)((stub) => stub.remove(tenant, webhookId), UNSAFE));
    return emptyReply();
  },
});

const rotateWebhookSecret = defineRoute({
  method: 'POST',
  path: '/v1/webhooks/{webhook_id}/secret',
  operationId: 'rotateWebhookSecret',
  summary: 'Give a webhook a new secret; for a while its messages are signed with both',
  access: WRITE,
  body: RotateWebhookSecretSchema,
  answers: {
    200: {
      description: 'The webhook with its new secret, which is not shown again',
      content: { 'application/json': CreatedWebhookSchema },
    },
  },
  errors: ['not_found'],
  handle: async (exchange, { params, body }) => {
    const webhookId = webhookIdOf(params.webhook_id);
    const secret = await rotated(exchange, webhookId, Date.now() + body.former_secret_s * 1_000);
    const webhook = unwrap(await callsOf(exchange)((stub) => stub.find(webhookId), SAFE));
    return reply(200, { ...webhook, secret });
  },
});

async function rotated(
  exchange: Exchange<'tenant'>,
  webhookId: string,
  formerUntilMs: number,
): Promise<string> {
  const { secretsKey } = exchange.configuration;
  const owner = { tenant: exchange.principal.tenant, webhookId };
  const calls = callsOf(exchange);
  for (let tries = 0; tries < ROTATION_TRIES; tries += 1) {
    const before = unwrap(await calls((stub) => stub.secretsOf(webhookId), SAFE));
    const { current: former } = await openWebhookSecrets(secretsKey, owner, before);
    const secret = newWebhookSecret();
    const after = await sealWebhookSecrets(secretsKey, owner, { current: secret, former });
    const change = { before, after, formerUntilMs };
    if (unwrap(await calls((stub) => stub.rotate(webhookId, change), UNSAFE))) return secret;
  }
  throw new Refusal(failure('overloaded', 'the webhook changes again and again'));
}

const pingWebhook = defineRoute({
  method: 'POST',
  path: '/v1/webhooks/{webhook_id}/ping',
  operationId: 'pingWebhook',
  summary: 'Send a `webhook.ping` now, once, and say what came of it',
  access: WRITE,
  answers: {
    200: { description: 'What came of it', content: { 'application/json': WebhookPingSchema } },
  },
  errors: ['not_found'],
  handle: async (exchange, { params }) => {
    const webhookId = webhookIdOf(params.webhook_id);
    const { tenant } = exchange.principal;
    const calls = callsOf(exchange);
    const { url } = unwrap(await calls((stub) => stub.find(webhookId), SAFE));
    const sealed = unwrap(await calls((stub) => stub.secretsOf(webhookId), SAFE));
    const { secretsKey } = exchange.configuration;
    const { current } = await openWebhookSecrets(secretsKey, { tenant, webhookId }, sealed);
    const event = EventSchema.parse({
      id: newId('evt'),
      type: 'webhook.ping',
      timestamp: new Date().toISOString(),
      data: { webhook_id: webhookId },
    });
    const sinceMs = Date.now();
    const outcome = await attempt(
      { url, secrets: [current] },
      event,
      webhookAddressRules(exchange.configuration),
    );
    if (outcome.delivered) {
      const settled = [{ event, target: { webhookId }, outcome }];
      await exchange.env.WEBHOOKS.getByName(tenant).settle(tenant, settled);
    }
    return reply(200, {
      delivered: outcome.delivered,
      status_code: outcome.statusCode,
      error: outcome.delivered ? null : outcome.message,
      duration_ms: Date.now() - sinceMs,
    });
  },
});

function callsOf({ env, principal }: Exchange<'tenant'>) {
  return webhookCalls(env, principal.tenant);
}

function webhookIdOf(text: string): string {
  if (WebhookIdSchema.safeParse(text).success) return text;
  throw notFound('no such webhook, or not yours');
}

export const webhookRoutes = [
  createWebhook,
  listWebhooks,
  getWebhook,
  replaceWebhook,
  deleteWebhook,
  rotateWebhookSecret,
  pingWebhook,
];
