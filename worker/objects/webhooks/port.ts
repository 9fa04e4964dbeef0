/** What others may ask of the webhooks of one tenant. */
import type { SealedCallback } from '../../../shared/callback.ts';
import type { Outcome } from '../../../shared/errors.ts';
import type { Event } from '../../../shared/event.ts';
import type { CreateWebhook, Webhook } from '../../../shared/webhook.ts';
import type { EventFilter } from '../../webhooks/wanted.ts';

/** A webhook as whoever delivers sees it. */
export interface Endpoint extends EventFilter {
  webhookId: string;
  url: string;
  /** Sealed. */
  secrets: string;
  /** Whether messages are signed with the former secret too. */
  withFormer: boolean;
  /** It failed again and again: nothing new is tried there before it has recovered. */
  isHeld: boolean;
  /** Whether a success is worth telling. */
  tellsSuccess: boolean;
}

/** Whom a delivery is for. */
export type Target = { webhookId: string } | { callback: SealedCallback };

/** One that was tried before, or held back, and is due. */
export interface Due {
  deliveryId: number;
  event: Event;
  target: Target;
}

export type AttemptOutcome =
  | { delivered: true; statusCode: number }
  | {
      delivered: false;
      statusCode: number | null;
      /** In words of ours: an answer is never repeated. */
      message: string;
      /** The receiver wants no more. */
      isGone: boolean;
    };

/** What became of a delivery; `held` was not tried. */
export interface Settled {
  /** Of one that waited. */
  deliveryId?: number | undefined;
  event: Event;
  target: Target;
  outcome: AttemptOutcome | 'held';
}

export interface NewWebhook {
  tenant: string;
  webhookId: string;
  webhook: CreateWebhook;
  /** Sealed. */
  secrets: string;
}

export interface WebhooksPort {
  create(webhook: NewWebhook): Promise<Outcome<Webhook>>;
  list(): Promise<Outcome<Webhook[]>>;
  find(webhookId: string): Promise<Outcome<Webhook>>;
  /** Begins anew with it: failures of before do not count. */
  replace(webhookId: string, webhook: CreateWebhook): Promise<Outcome<Webhook>>;
  remove(tenant: string, webhookId: string): Promise<Outcome<null>>;
  /** The secrets as they are sealed, to make new ones of. */
  secretsOf(webhookId: string): Promise<Outcome<string>>;
  /** Takes new ones in the place of `before`; false where they are others by now. */
  rotate(
    webhookId: string,
    secrets: { before: string; after: string; formerUntilMs: number },
  ): Promise<Outcome<boolean>>;
  /** Those that are enabled. */
  endpoints(): Promise<Endpoint[]>;
  /** The deliveries among these that still wait, with the endpoints that they are for. */
  claim(deliveryIds: readonly number[]): Promise<Due[]>;
  /** Resolves when all of it is written: what failed is tried again from here. */
  settle(tenant: string, settled: readonly Settled[]): Promise<void>;
}
