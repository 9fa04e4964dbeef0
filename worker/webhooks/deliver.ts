/** Deliveries of one tenant, several at a time: what of an endpoint fails holds back what else is for it. */
import type { Event } from '../../shared/event.ts';
import type { Configuration } from '../configuration.ts';
import type { Endpoint, Settled, Target } from '../objects/webhooks/port.ts';
import { webhookAddressRules } from '../tools/http/address.ts';
import { attempt, type Receiver } from './attempt.ts';
import { openCallback, openWebhookSecrets } from './secrets.ts';

/** Attempts at one endpoint at once. */
const LANES = 4;

export interface Delivery {
  deliveryId?: number | undefined;
  event: Event;
  target: Target;
}

export interface DeliveryContext {
  configuration: Configuration;
  tenant: string;
  endpoints: ReadonlyMap<string, Endpoint>;
}

/** Resolves with what became of each. */
export async function deliver(context: DeliveryContext, deliveries: readonly Delivery[]): Promise<Settled[]> {
  const byTarget = Map.groupBy(deliveries, ({ target }) =>
    'webhookId' in target ? target.webhookId : target.callback.holder,
  );
  const settled = await Promise.all([...byTarget.values()].map((group) => deliverTo(context, group)));
  return settled.flat();
}

async function deliverTo(context: DeliveryContext, group: readonly Delivery[]): Promise<Settled[]> {
  const [first] = group;
  const receiver = first === undefined ? undefined : await receiverOf(context, first.target);
  const settled: Settled[] = [];
  let next = 0;
  let isHeld = false;
  const work = async (): Promise<void> => {
    for (let delivery = group[next]; delivery !== undefined; delivery = group[next]) {
      next += 1;
      const isTried = receiver !== undefined && !isHeld && !isHeldAlready(context, delivery);
      const outcome = isTried
        ? await attempt(receiver, delivery.event, webhookAddressRules(context.configuration))
        : ('held' as const);
      if (outcome !== 'held' && !outcome.delivered) isHeld = true;
      settled.push({ ...delivery, outcome });
    }
  };
  await Promise.all(Array.from({ length: Math.min(LANES, group.length) }, work));
  return settled;
}

/** What has waited is tried though its endpoint is held: that is how it comes back. */
function isHeldAlready({ endpoints }: DeliveryContext, { deliveryId, target }: Delivery): boolean {
  if (deliveryId !== undefined || !('webhookId' in target)) return false;
  return endpoints.get(target.webhookId)?.isHeld === true;
}

/** Undefined for an endpoint that is gone or disabled: whoever keeps the deliveries lets them go. */
async function receiverOf(
  { configuration, tenant, endpoints }: DeliveryContext,
  target: Target,
): Promise<Receiver | undefined> {
  const { secretsKey } = configuration;
  if ('callback' in target) {
    const { url, secret } = await openCallback(secretsKey, tenant, target.callback);
    return { url, secrets: [secret] };
  }
  const endpoint = endpoints.get(target.webhookId);
  if (endpoint === undefined) return undefined;
  const { current, former } = await openWebhookSecrets(secretsKey, { tenant, ...target }, endpoint.secrets);
  const secrets = endpoint.withFormer && former !== undefined ? [current, former] : [current];
  return { url: endpoint.url, secrets };
}
