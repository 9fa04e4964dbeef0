/** The webhooks of one tenant, and what could not be delivered at once: tried again from here, over the queue. */
import { DurableObject } from 'cloudflare:workers';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import {
  type CreateWebhook,
  MAX_WAITING_CALLBACKS,
  MAX_WAITING_DELIVERIES,
  MAX_WEBHOOKS,
  type Webhook,
} from '../../../shared/webhook.ts';
import type { Env } from '../../env.ts';
import {
  FAILURES_TO_HOLD,
  HELD_BACK_MS,
  MAX_WAITING_MS,
  PROBE_INTERVAL_MS,
  waitAfter,
} from '../../webhooks/schedule.ts';
import { logInfo, logWarning, messageOf } from '../log.ts';
import type { AttemptOutcome, Due, Endpoint, NewWebhook, Settled, Target, WebhooksPort } from './port.ts';
import { type DeliveryRow, type WebhookRow, WebhookStore } from './store.ts';
import { webhookView } from './view.ts';

/** Deliveries that one notice of the queue names. */
const MAX_DUE_AT_ONCE = 50;
/** Longer than they take: what was sent and not heard of is sent again. */
const LEASE_MS = 60_000;
/** A success is written that seldom, where nothing else has changed. */
const SUCCESS_NOTED_MS = 60_000;
const RESTED = { isFailing: false, failures: 0, errorAtMs: null, errorMessage: null, errorStatus: null };

type FailedAttempt = Extract<AttemptOutcome, { delivered: false }>;

export class WebhooksObject extends DurableObject<Env> implements WebhooksPort {
  readonly #store: WebhookStore;
  #turns: Promise<unknown> = Promise.resolve();

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new WebhookStore(ctx.storage);
  }

  create(made: NewWebhook): Promise<Outcome<Webhook>> {
    return this.#inTurn(() => this.#create(made));
  }

  async #create({ tenant, webhookId, webhook, secrets }: NewWebhook): Promise<Outcome<Webhook>> {
    // First: a session that sends without need is better than one that does not.
    await this.env.TENANT.getByName(tenant).setWebhooks(tenant, true);
    if (this.#store.all().length >= MAX_WEBHOOKS) {
      return failure('quota_exceeded', `a tenant has at most ${MAX_WEBHOOKS} webhooks`);
    }
    const nowMs = Date.now();
    this.#store.insert({
      webhookId,
      ...columnsOf(webhook),
      secrets,
      formerUntilMs: null,
      ...RESTED,
      successAtMs: null,
      nextProbeAtMs: 0,
      createdAtMs: nowMs,
      updatedAtMs: nowMs,
    });
    return this.find(webhookId);
  }

  async list(): Promise<Outcome<Webhook[]>> {
    return success(this.#store.all().map((row) => this.#view(row)));
  }

  async find(webhookId: string): Promise<Outcome<Webhook>> {
    const row = this.#store.find(webhookId);
    return row === undefined ? NOT_FOUND : success(this.#view(row));
  }

  async replace(webhookId: string, webhook: CreateWebhook): Promise<Outcome<Webhook>> {
    if (this.#store.find(webhookId) === undefined) return NOT_FOUND;
    this.#store.update(webhookId, { ...columnsOf(webhook), ...RESTED, updatedAtMs: Date.now() });
    if (webhook.enabled) await this.#tryNow(webhookId);
    else this.#store.deleteDeliveriesTo(webhookId);
    return this.find(webhookId);
  }

  remove(tenant: string, webhookId: string): Promise<Outcome<null>> {
    return this.#inTurn(() => this.#remove(tenant, webhookId));
  }

  async #remove(tenant: string, webhookId: string): Promise<Outcome<null>> {
    if (this.#store.find(webhookId) === undefined) return NOT_FOUND;
    this.#store.delete(webhookId);
    if (this.#store.all().length === 0) await this.env.TENANT.getByName(tenant).setWebhooks(tenant, false);
    return success(null);
  }

  /** One after the other: what the tenant is told last is how it is. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(work);
    this.#turns = turn.catch(() => undefined);
    return turn;
  }

  async secretsOf(webhookId: string): Promise<Outcome<string>> {
    const row = this.#store.find(webhookId);
    return row === undefined ? NOT_FOUND : success(row.secrets);
  }

  async rotate(
    webhookId: string,
    { before, after, formerUntilMs }: { before: string; after: string; formerUntilMs: number },
  ): Promise<Outcome<boolean>> {
    const row = this.#store.find(webhookId);
    if (row === undefined) return NOT_FOUND;
    if (row.secrets !== before) return success(false);
    this.#store.update(webhookId, { secrets: after, formerUntilMs, updatedAtMs: Date.now() });
    return success(true);
  }

  async endpoints(): Promise<Endpoint[]> {
    const nowMs = Date.now();
    return this.#store
      .all()
      .filter(({ isEnabled }) => isEnabled)
      .map(({ webhookId, url, events, labels, secrets, formerUntilMs, failures, ...row }) => ({
        webhookId,
        url,
        events,
        labels,
        secrets,
        withFormer: formerUntilMs !== null && formerUntilMs > nowMs,
        isHeld: failures >= FAILURES_TO_HOLD,
        tellsSuccess:
          row.isFailing || row.errorAtMs !== null || (row.successAtMs ?? 0) + SUCCESS_NOTED_MS < nowMs,
      }));
  }

  async claim(deliveryIds: readonly number[]): Promise<Due[]> {
    return deliveryIds.flatMap((deliveryId) => {
      const row = this.#store.delivery(deliveryId);
      return row === undefined ? [] : [{ deliveryId, event: row.event, target: targetOf(row) }];
    });
  }

  async settle(tenant: string, settled: readonly Settled[]): Promise<void> {
    this.#store.setTenant(tenant);
    this.ctx.storage.transactionSync(() => {
      for (const one of settled) this.#settle(one);
    });
    await this.#setAlarm();
  }

  #settle({ deliveryId, event, target, outcome }: Settled): void {
    const waiting = deliveryId === undefined ? undefined : this.#store.delivery(deliveryId);
    // It was given up or removed meanwhile.
    if (deliveryId !== undefined && waiting === undefined) return;
    const webhook = 'webhookId' in target ? this.#store.find(target.webhookId) : undefined;
    const isOver = 'webhookId' in target && webhook?.isEnabled !== true;
    if (outcome !== 'held' && !isOver && webhook !== undefined) this.#heard(webhook, outcome);
    const isDone = outcome !== 'held' && (outcome.delivered || outcome.isGone);
    if (isOver || isDone) this.#forget(waiting);
    else {
      const attempts = outcome === 'held' ? 0 : (waiting?.attempts ?? 0) + 1;
      this.#wait({ event, target, waiting, webhook, attempts });
    }
  }

  #heard(webhook: WebhookRow, outcome: AttemptOutcome): void {
    if (outcome.delivered) {
      this.#succeeded(webhook);
      return;
    }
    this.#failed(webhook, outcome);
    if (outcome.isGone) this.#disable(webhook);
  }

  /** Tried again later, or given up. */
  #wait({
    event,
    target,
    waiting,
    webhook,
    attempts,
  }: Pick<Settled, 'event' | 'target'> & {
    waiting: DeliveryRow | undefined;
    webhook: WebhookRow | undefined;
    attempts: number;
  }): void {
    const waitMs = attempts === 0 ? HELD_BACK_MS : waitAfter(attempts, Math.random());
    const isRoom = waiting !== undefined || this.#hasRoom(target);
    if (waitMs === null || !isRoom) {
      this.#forget(waiting);
      this.#givenUp(webhook, { event_id: event.id, attempts, is_room: isRoom });
      return;
    }
    const nowMs = Date.now();
    const nextAtMs = nowMs + waitMs;
    if (waiting !== undefined) {
      this.#store.setAttempts(waiting.deliveryId, Math.max(attempts, waiting.attempts), nextAtMs);
      return;
    }
    const callback = 'callback' in target ? target.callback : null;
    this.#store.insertDelivery({
      target: nameOf(target),
      callback,
      event,
      attempts,
      nextAtMs,
      createdAtMs: nowMs,
    });
  }

  #hasRoom(target: Target): boolean {
    if ('callback' in target && this.#store.waitingCallbacks() >= MAX_WAITING_CALLBACKS) return false;
    return this.#store.waitingInAll() < MAX_WAITING_DELIVERIES;
  }

  #givenUp(
    webhook: WebhookRow | undefined,
    facts: { event_id: string; attempts: number; is_room: boolean },
  ): void {
    if (webhook !== undefined) this.#store.update(webhook.webhookId, { isFailing: true });
    logWarning('delivery_given_up', { ...facts, webhook_id: webhook?.webhookId ?? null });
  }

  #forget(waiting: DeliveryRow | undefined): void {
    if (waiting !== undefined) this.#store.deleteDelivery(waiting.deliveryId);
  }

  #succeeded({ webhookId, failures }: WebhookRow): void {
    this.#store.update(webhookId, { ...RESTED, successAtMs: Date.now() });
    // What was held back need not wait for its turn any more.
    if (failures >= FAILURES_TO_HOLD) this.#store.setNextOf(webhookId, Date.now());
  }

  #failed({ webhookId, failures }: WebhookRow, { statusCode, message }: FailedAttempt): void {
    this.#store.update(webhookId, {
      failures: failures + 1,
      errorAtMs: Date.now(),
      errorMessage: message,
      errorStatus: statusCode,
    });
  }

  #disable({ webhookId }: WebhookRow): void {
    this.#store.update(webhookId, { isEnabled: false, updatedAtMs: Date.now() });
    this.#store.deleteDeliveriesTo(webhookId);
    logInfo('webhook_gone', { webhook_id: webhookId });
  }

  async #tryNow(webhookId: string): Promise<void> {
    this.#store.setNextOf(webhookId, Date.now());
    await this.#setAlarm();
  }

  /** What is due goes on the queue; to where messages fail again and again, one in each interval. */
  override async alarm(): Promise<void> {
    const nowMs = Date.now();
    const tenant = this.#store.tenant();
    const due = tenant === null ? [] : this.#store.due(nowMs, MAX_DUE_AT_ONCE);
    const send = due.filter((row) => this.#isToSend(row, nowMs)).map(({ deliveryId }) => deliveryId);
    this.#store.setNext(send, nowMs + LEASE_MS);
    await this.#setAlarm();
    if (tenant === null || send.length === 0) return;
    try {
      await this.env.NOTICES.send({ kind: 'deliveries', tenant, deliveryIds: send }, { contentType: 'json' });
    } catch (error: unknown) {
      // They are due again when their lease is over.
      logWarning('deliveries_not_sent', { count: send.length, detail: messageOf(error) });
    }
  }

  /** Otherwise it waits for longer, or is given up. */
  #isToSend({ deliveryId, target, event, attempts, createdAtMs }: DeliveryRow, nowMs: number): boolean {
    const webhook = this.#store.find(target);
    if (createdAtMs !== null && createdAtMs + MAX_WAITING_MS <= nowMs) {
      this.#store.deleteDelivery(deliveryId);
      this.#givenUp(webhook, { event_id: event.id, attempts, is_room: true });
      return false;
    }
    if (webhook === undefined || webhook.failures < FAILURES_TO_HOLD) return true;
    if (webhook.nextProbeAtMs > nowMs) {
      this.#store.postpone(target, { nowMs, untilMs: webhook.nextProbeAtMs });
      return false;
    }
    this.#store.update(target, { nextProbeAtMs: nowMs + PROBE_INTERVAL_MS });
    return true;
  }

  async #setAlarm(): Promise<void> {
    const nextAtMs = this.#store.nextAtMs();
    if (nextAtMs === null) await this.ctx.storage.deleteAlarm();
    else await this.ctx.storage.setAlarm(nextAtMs);
  }

  #view(row: WebhookRow): Webhook {
    return webhookView(row, this.#store.waiting(row.webhookId), Date.now());
  }
}

const NOT_FOUND = failure('not_found', 'no such webhook, or not yours');

function columnsOf({ url, events, labels, description, enabled }: CreateWebhook) {
  return { url, events, labels, description, isEnabled: enabled };
}

function nameOf(target: Target): string {
  return 'webhookId' in target ? target.webhookId : target.callback.holder;
}

function targetOf({ target, callback }: DeliveryRow): Target {
  return callback === null ? { webhookId: target } : { callback };
}
