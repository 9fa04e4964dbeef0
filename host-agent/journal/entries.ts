/** What the journal tells: the entries, in the form in which they lie on disk. */
import * as z from 'zod';
import { EnvelopeSchema } from '../../shared/dsse.ts';
import { ExecutionOutcomeSchema } from '../../shared/execution.ts';
import { SessionLinkUpSchema } from '../../shared/frames.ts';
import { GrantLimitsSchema } from '../../shared/grant.ts';
import { ExecutionIdSchema, ImageDigestSchema, SessionIdSchema, Sha256Schema } from '../../shared/ids.ts';
import { FormerHostsSchema } from '../../shared/receipt.ts';

const Session = z.object({ session_id: SessionIdSchema, epoch: z.int().min(1) });

const KeySetEntrySchema = z.object({
  kind: z.literal('key_set'),
  version: z.int().min(1),
  token: z.string(),
});

/** A sandbox is about to be made for a session. Written before anything is started. */
const AttachedEntrySchema = Session.extend({
  kind: z.literal('attached'),
  tenant: z.string(),
  sandbox_id: z.string(),
  image: ImageDigestSchema,
  jti: z.string(),
  seq: z.int(),
  at_s: z.int(),
  /** Where the receipts of the session stand, as the edge has accepted them. */
  receipt_seq: z.int().min(0),
  receipt_sha256: Sha256Schema,
});

/** An execution is about to be started; with what a receipt needs to know of it. Written before anything is started. */
export const StartedEntrySchema = Session.extend({
  kind: z.literal('started'),
  execution_id: ExecutionIdSchema,
  jti: z.string(),
  grant_sha256: Sha256Schema,
  tenant: z.string(),
  /** The grant's number; later grants of the session are not lower. */
  seq: z.int(),
  tool: z.string(),
  tool_version: z.string(),
  args_sha256: Sha256Schema,
  image: ImageDigestSchema,
  limits: GrantLimitsSchema,
  granted_at: z.iso.datetime(),
  started_at: z.iso.datetime(),
  /** Of one that was started elsewhere and goes on here: it is about to. */
  former_hosts: FormerHostsSchema.min(1).optional(),
});
export type StartedEntry = z.infer<typeof StartedEntrySchema>;

/** An execution ended. The payload of the record is the payloads of `frames`, one after the other. */
const FinishedEntrySchema = Session.extend({
  kind: z.literal('finished'),
  execution_id: ExecutionIdSchema,
  receipt_seq: z.int().min(1),
  receipt_sha256: Sha256Schema,
  outcome: ExecutionOutcomeSchema,
  receipt: EnvelopeSchema,
  /** What the edge had not acknowledged of this execution, without its `finished` frame, and payload sizes. */
  frames: z.array(z.object({ header: SessionLinkUpSchema, bytes: z.int().min(0) })),
});

const AcknowledgedEntrySchema = Session.extend({
  kind: z.literal('acknowledged'),
  execution_id: ExecutionIdSchema,
});

/** The sandbox is gone. `told`: the edge knows, so that nothing is left to deliver. */
const DetachedEntrySchema = Session.extend({ kind: z.literal('detached'), told: z.boolean(), at_s: z.int() });

/** Written by compaction: what is remembered of a session beside its executions. */
const SessionEntrySchema = Session.extend({
  kind: z.literal('session'),
  tenant: z.string(),
  sandbox_id: z.string(),
  image: ImageDigestSchema,
  jti: z.string(),
  seq: z.int(),
  at_s: z.int(),
  attachment: z.enum(['attached', 'lost', 'gone']),
  receipt_seq: z.int().min(0),
  receipt_sha256: Sha256Schema,
});

export const JournalEntrySchema = z.discriminatedUnion('kind', [
  KeySetEntrySchema,
  AttachedEntrySchema,
  StartedEntrySchema,
  FinishedEntrySchema,
  AcknowledgedEntrySchema,
  DetachedEntrySchema,
  SessionEntrySchema,
]);
export type JournalEntry = z.infer<typeof JournalEntrySchema>;
export type FinishedEntry = z.infer<typeof FinishedEntrySchema>;
