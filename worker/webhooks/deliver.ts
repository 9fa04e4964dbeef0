/** Deliveries of one tenant, several at a time: what of an endpoint fails holds back what else is for it. */
import type { Event } from '../../shared/event.ts';
import type { Configuration } from '../configuration.ts';
import type { Endpoint, Settled, Target } from '../objects/webhooks/port.ts';
import { webhookAddressRules } from '../tools/http/address.ts';
import { attempt, type Receiver } from './attempt.ts';
import { openCallback, openWebhookSecrets } from './secrets.ts';

/** Attempts at one endpoint at once. */
const LANES = 4;
/** No attempt begins later: with the last of them all is over before the senders of the events send them again. */
const PATIENCE_MS = 15_000;

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

/** Deliveries that belong together: `settle` hears what became of them as soon as all of them are over. */
export interface Consignment {
  deliveries: readonly Delivery[];
  settle: (settled: readonly Settled[]) => Promise<void>;
}

interface Waiting extends PromiseWithResolvers<Settled> {
  delivery: Delivery;
}

/** Resolves when all is settled; rejects then where some of it could not be. */
export async function deliver(context: DeliveryContext, consignments: readonly Consignment[]): Promise<void> {
  const all: Waiting[] = [];
  const settling = consignments.map(async ({ deliveries, settle }) => {
    const own = deliveries.map((delivery) => ({ delivery, ...Promise.withResolvers<Settled>() }));
    all.push(...own);
    await settle(await Promise.all(own.map(({ promise }) => promise)));
  });
  const untilMs = Date.now() + PATIENCE_MS;
  const byTarget = Map.groupBy(all, ({ delivery: { target } }) =>
    'webhookId' in target ? target.webhookId : target.callback.holder,
  );
  for (const group of byTarget.values()) {
    deliverTo(context, group, untilMs).catch((error: unknown) => {
      for (const { reject } of group) reject(error);
    });
  }
  const failed = (await Promise.allSettled(settling)).find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') throw failed.reason;
}

async function deliverTo(
  context: DeliveryContext,
  group: readonly Waiting[],
  untilMs: number,
): Promise<void> {
  const [first] = group;
  const receiver = first === undefined ? undefined : await receiverOf(context, first.delivery.target);
  let next = 0;
  let isHeld = false;
  const work = async (): Promise<void> => {
    for (let waiting = group[next]; waiting !== undefined; waiting = group[next]) {
      const { delivery, resolve } = waiting;
      next += 1;
      isHeld ||= Date.now() >= untilMs;
      const isTried = receiver !== undefined && !isHeld && !isHeldAlready(context, delivery);
      const outcome = isTried
        ? await attempt(receiver, delivery.event, webhookAddressRules(context.configuration))
        : ('held' as const);
      if (outcome !== 'held' && !outcome.delivered) isHeld = true;
      resolve({ ...delivery, outcome });
    }
  };
  await Promise.all(Array.from({ length: Math.min(LANES, group.length) }, work));
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
