/** Where a request wants its end to be told: checked, and sealed before anything keeps it. */
import type { Callback, SealedCallback } from '../../shared/callback.ts';
import { invalid } from '../middleware/body.ts';
import type { Exchange } from '../routing/route.ts';
import { addressFault, webhookAddressRules } from '../tools/http/address.ts';
import { sealCallback } from '../webhooks/secrets.ts';

/** An address that a webhook may have. */
export function requireWebhookUrl({ configuration }: Exchange<'tenant'>, url: string, path: string): void {
  const parsed = URL.parse(url);
  const fault = parsed === null ? 'an address' : addressFault(parsed, webhookAddressRules(configuration));
  if (fault !== undefined) throw invalid([{ path, expected: fault }]);
}

/** Only what is detached has one: of everything else the answer tells the end. */
export async function sealedCallback(
  exchange: Exchange<'tenant'>,
  callback: Callback | undefined,
  { isDetached }: { isDetached: boolean },
): Promise<SealedCallback | null> {
  if (callback === undefined) return null;
  if (!isDetached) throw invalid([{ path: 'body.callback', expected: 'nothing, unless `detach` is true' }]);
  requireWebhookUrl(exchange, callback.url, 'body.callback.url');
  return sealCallback(exchange.configuration.secretsKey, exchange.principal.tenant, callback);
}
