/**
 * The consumer of the queue. The objects that sent keep what they sent until they hear that it is delivered, or written
 * down to be tried again; so nothing hangs on the queue keeping it, and a message is never asked for again.
 */
import { type Configuration, configurationOf } from '../configuration.ts';
import type { Env } from '../env.ts';
import { logWarning, messageOf } from '../objects/log.ts';
import { sessionObjectName } from '../objects/session-name.ts';
import type { Endpoint, Settled } from '../objects/webhooks/port.ts';
import type { TermsNotice } from '../terms/notice.ts';
import { tellTerms } from '../terms/tell.ts';
import { type Delivery, deliver } from './deliver.ts';
import { type EventsNotice, type Notice, NoticeSchema } from './message.ts';
import { isWanted } from './wanted.ts';

/** A receiver that takes its time keeps no other message of the queue waiting for longer. */
const PATIENCE_MS = 2_000;

interface Background {
  waitUntil(work: Promise<unknown>): void;
}

export async function consume(
  batch: { messages: readonly { body: unknown }[] },
  env: Env,
  context: Background,
): Promise<void> {
  const configuration = await configurationOf(env);
  const notices = batch.messages.flatMap(({ body }) => {
    const parsed = NoticeSchema.safeParse(body);
    if (!parsed.success) logWarning('notice_not_read', { detail: parsed.error.issues[0]?.path.join('.') });
    return parsed.data ?? [];
  });
  const terms = notices.filter((notice) => notice.kind === 'terms');
  const byTenant = Map.groupBy(
    notices.filter((notice) => notice.kind !== 'terms'),
    ({ tenant }) => tenant,
  );
  const work = Promise.all([
    ...terms.map((notice) => tellTerms(env, notice)),
    ...[...byTenant].map(([tenant, own]) =>
      serve({ env, configuration, tenant }, own).catch((error: unknown) =>
        logWarning('notices_not_served', { detail: messageOf(error) }),
      ),
    ),
  ]);
  context.waitUntil(work);
  await Promise.race([work, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
}

interface Service {
  env: Env;
  configuration: Configuration;
  tenant: string;
}

async function serve(service: Service, notices: readonly Exclude<Notice, TermsNotice>[]): Promise<void> {
  const { env, configuration, tenant } = service;
  const webhooks = () => env.WEBHOOKS.getByName(tenant);
  const endpoints = new Map((await webhooks().endpoints()).map((endpoint) => [endpoint.webhookId, endpoint]));
  const events = notices.filter((notice) => notice.kind === 'events');
  const ids = notices.flatMap((notice) => (notice.kind === 'deliveries' ? notice.deliveryIds : []));
  const due: Delivery[] = ids.length === 0 ? [] : await webhooks().claim(ids);
  const tell = async (settled: readonly Settled[]): Promise<void> => {
    const told = settled.filter((one) => isToTell(one, endpoints));
    if (told.length > 0) await webhooks().settle(tenant, told);
  };
  await deliver({ configuration, tenant, endpoints }, [
    { deliveries: due, settle: tell },
    ...events.map((notice) => ({
      deliveries: deliveriesOf(notice, endpoints),
      settle: async (settled: readonly Settled[]): Promise<void> => {
        await tell(settled);
        // Only now: what is delivered, or written down, need not be sent again.
        await acknowledge(service, notice);
      },
    })),
  ]);
}

function deliveriesOf(
  { events, labels }: EventsNotice,
  endpoints: ReadonlyMap<string, Endpoint>,
): Delivery[] {
  return events.flatMap(({ event, callback }): Delivery[] => [
    ...[...endpoints.values()]
      .filter((endpoint) => isWanted(endpoint, event, labels))
      .map(({ webhookId }) => ({ event, target: { webhookId } })),
    ...(callback === null ? [] : [{ event, target: { callback } }]),
  ]);
}

/** A message that arrived at its first attempt is nobody's concern any more. */
function isToTell(
  { deliveryId, outcome, target }: Settled,
  endpoints: ReadonlyMap<string, Endpoint>,
): boolean {
  if (deliveryId !== undefined || outcome === 'held' || !outcome.delivered) return true;
  return 'webhookId' in target && endpoints.get(target.webhookId)?.tellsSuccess === true;
}

async function acknowledge({ env, tenant }: Service, { origin, events }: EventsNotice): Promise<void> {
  const ids = events.map(({ event }) => event.id);
  switch (origin.kind) {
    case 'session':
      return env.SESSION.getByName(sessionObjectName(tenant, origin.sessionId)).eventsTaken(ids);
    case 'workflow':
      return env.WORKFLOW.getByName(`${tenant}:${origin.workflowId}`).eventsTaken(ids);
    case 'repair_run':
      return env.REPAIR.getByName(`${tenant}:${origin.repairRunId}`).eventsTaken(ids);
  }
}
