/** Where the end of something that nobody waits for is told. */
import * as z from 'zod';

const SECRET_PREFIX = 'whsec_';

/** As Standard Webhooks have it: the prefix, then 24 to 64 bytes in base64. */
export const WebhookSecretSchema = z
  .string()
  .regex(new RegExp(`^${SECRET_PREFIX}[A-Za-z0-9+/]{32,86}={0,2}$`))
  .refine((secret) => (secret.length - SECRET_PREFIX.length) % 4 === 0, {
    message: '`whsec_` and 24 to 64 bytes in base64',
  });

export const MAX_WEBHOOK_URL_CHARACTERS = 2_048;
export const WebhookUrlSchema = z.string().min(1).max(MAX_WEBHOOK_URL_CHARACTERS);

/** Part of a request that is detached. */
export const CallbackSchema = z.strictObject({
  url: WebhookUrlSchema.describe('An https address of a public name.'),
  secret: WebhookSecretSchema.describe(
    'What the message is signed with: `whsec_` and 24 to 64 bytes in base64, of your own making.',
  ),
});
export type Callback = z.infer<typeof CallbackSchema>;

/** A callback as it is kept: its secret sealed. */
export const SealedCallbackSchema = z.strictObject({
  url: z.string(),
  secret: z.string(),
  holder: z.string(),
});
export type SealedCallback = z.infer<typeof SealedCallbackSchema>;
