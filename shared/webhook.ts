/** Webhooks of a tenant: addresses that are told what happens, by the Standard Webhooks specification. */
import * as z from 'zod';
import { WebhookSecretSchema, WebhookUrlSchema } from './callback.ts';
import { WebhookEventTypeSchema } from './event.ts';
import { WebhookIdSchema } from './ids.ts';
import { parseLabelSelector } from './session.ts';

export const MAX_WEBHOOKS = 32;
/** Deliveries of a tenant that wait to be tried again. */
export const MAX_WAITING_DELIVERIES = 10_000;
/** So that callbacks, each of an address of its own, leave room for webhooks. */
export const MAX_WAITING_CALLBACKS = MAX_WAITING_DELIVERIES / 2;
/** How long the secret before a rotation still signs, if nothing else is said. */
export const DEFAULT_FORMER_SECRET_S = 86_400;
export const MAX_FORMER_SECRET_S = 7 * 86_400;

const LabelSelectorSchema = z
  .string()
  .min(1)
  .max(2_048)
  .refine((text) => parseLabelSelector(text) !== undefined, {
    message: 'labels as `key=value` or `key`, with commas between them',
  });

/** Body of `POST /v1/webhooks`, and of the `PUT` that replaces one. */
export const CreateWebhookSchema = z.strictObject({
  url: WebhookUrlSchema.describe('An https address of a public name.'),
  events: z
    .array(WebhookEventTypeSchema)
    .min(1)
    .nullable()
    .default(null)
    .describe('Types of events that it is told of; null: all of them.'),
  labels: LabelSelectorSchema.nullable()
    .default(null)
    .describe(
      'Only of sessions and workflows with these labels: `team=red,env` (any value of `env`), all of them.',
    ),
  description: z.string().max(256).default(''),
  enabled: z.boolean().default(true),
});
export type CreateWebhook = z.infer<typeof CreateWebhookSchema>;

/** `failing`: a message was given up. `disabled`: by its owner, or because it was answered 410. */
export const WebhookStatusSchema = z.enum(['active', 'failing', 'disabled']);

export const WebhookSchema = z.object({
  webhook_id: WebhookIdSchema,
  url: z.string(),
  events: z.array(WebhookEventTypeSchema).nullable(),
  labels: z.string().nullable(),
  description: z.string(),
  enabled: z.boolean(),
  status: WebhookStatusSchema,
  /** Of the last attempt that failed, as long as none succeeded since. */
  last_error: z
    .object({ at: z.iso.datetime(), message: z.string(), status_code: z.int().nullable() })
    .nullable(),
  /** Near enough: it is not written for each message. */
  last_success_at: z.iso.datetime().nullable(),
  /** Messages that wait to be tried again. */
  waiting: z.int().min(0),
  /** Until when the secret before the last rotation signs too. */
  former_secret_until: z.iso.datetime().nullable(),
  created_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
});
export type Webhook = z.infer<typeof WebhookSchema>;

/** The secret is shown this once. */
export const CreatedWebhookSchema = WebhookSchema.extend({ secret: WebhookSecretSchema });
export const WebhookListSchema = z.object({ webhooks: z.array(WebhookSchema) });

export const RotateWebhookSecretSchema = z.strictObject({
  former_secret_s: z
    .int()
    .min(0)
    .max(MAX_FORMER_SECRET_S)
    .default(DEFAULT_FORMER_SECRET_S)
    .describe('How long messages are signed with the former secret too.'),
});

export const WebhookPingSchema = z.object({
  delivered: z.boolean(),
  status_code: z.int().nullable(),
  error: z.string().nullable(),
  duration_ms: z.number(),
});
