/** The secrets of receivers, as they are kept. */
import type { Callback, SealedCallback } from '../../shared/callback.ts';
import { randomHandle } from '../../shared/ids.ts';
import { openSecrets, sealSecrets } from '../secrets/sealed-secrets.ts';

const CURRENT = 'current';
const FORMER = 'former';

export interface WebhookSecrets {
  current: string;
  former?: string | undefined;
}

/** What their seal is bound to: no tool has a name with a line break in it. */
function holderOf(name: string): string {
  return `webhook\n${name}`;
}

export function sealWebhookSecrets(
  key: CryptoKey,
  { tenant, webhookId }: { tenant: string; webhookId: string },
  { current, former }: WebhookSecrets,
): Promise<string> {
  const secrets = { [CURRENT]: current, ...(former === undefined ? {} : { [FORMER]: former }) };
  return sealSecrets(key, { tenant, holder: holderOf(webhookId) }, secrets);
}

export async function openWebhookSecrets(
  key: CryptoKey,
  { tenant, webhookId }: { tenant: string; webhookId: string },
  sealed: string,
): Promise<WebhookSecrets> {
  const opened = await openSecrets(key, { tenant, holder: holderOf(webhookId) }, sealed);
  const { [CURRENT]: current, [FORMER]: former } = opened;
  if (current === undefined) throw new Error('sealed secrets are damaged');
  return { current, former };
}

export async function sealCallback(
  key: CryptoKey,
  tenant: string,
  { url, secret }: Callback,
): Promise<SealedCallback> {
  const holder = randomHandle();
  const sealed = await sealWebhookSecrets(key, { tenant, webhookId: holder }, { current: secret });
  return { url, secret: sealed, holder };
}

export async function openCallback(
  key: CryptoKey,
  tenant: string,
  { url, secret, holder }: SealedCallback,
): Promise<Callback> {
  return { url, secret: (await openWebhookSecrets(key, { tenant, webhookId: holder }, secret)).current };
}
