/** What travels on the queue: events for whoever wants them, deliveries that are tried again, and terms for sessions. */
import * as z from 'zod';
import { SealedCallbackSchema } from '../../shared/callback.ts';
import { EventSchema } from '../../shared/event.ts';
import { RepairRunIdSchema, SessionIdSchema, TenantSchema, WorkflowIdSchema } from '../../shared/ids.ts';
import { type TermsNotice, TermsNoticeSchema } from '../terms/notice.ts';

/** An event that nobody has taken for so long is let go by the object that keeps it. */
export const MAX_EVENT_PENDING_MS = 3 * 86_400_000;
/** A message has at most 128 KB. */
export const MAX_NOTICE_CHARACTERS = 96 * 1024;

/** The object that keeps the events until it hears that they are in good hands. */
const OriginSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('session'), sessionId: SessionIdSchema }),
  z.strictObject({ kind: z.literal('workflow'), workflowId: WorkflowIdSchema }),
  z.strictObject({ kind: z.literal('repair_run'), repairRunId: RepairRunIdSchema }),
]);

const OutgoingEventSchema = z.strictObject({
  event: EventSchema,
  callback: SealedCallbackSchema.nullable(),
});
export type OutgoingEvent = z.infer<typeof OutgoingEventSchema>;

const EventsNoticeSchema = z.strictObject({
  kind: z.literal('events'),
  tenant: TenantSchema,
  origin: OriginSchema,
  /** Of the session, of the workflow, or of the session of the repair run. */
  labels: z.record(z.string(), z.string()),
  events: z.array(OutgoingEventSchema).min(1),
});
export type EventsNotice = z.infer<typeof EventsNoticeSchema>;

const DeliveriesNoticeSchema = z.strictObject({
  kind: z.literal('deliveries'),
  tenant: TenantSchema,
  deliveryIds: z.array(z.int()).min(1),
});
export type DeliveriesNotice = z.infer<typeof DeliveriesNoticeSchema>;

export const NoticeSchema = z.discriminatedUnion('kind', [
  EventsNoticeSchema,
  DeliveriesNoticeSchema,
  TermsNoticeSchema,
]);
export type Notice = z.infer<typeof NoticeSchema>;

/** What is used of the queue. */
export interface NoticeQueue {
  send(notice: Exclude<Notice, TermsNotice>, options: { contentType: 'json' }): Promise<unknown>;
  sendBatch(messages: Iterable<{ body: TermsNotice; contentType: 'json' }>): Promise<unknown>;
}
