/** What happens, as the stream of a session and webhooks tell it. Never arguments, output or secrets. */
import * as z from 'zod';
import { ApprovalStatusSchema } from './approval.ts';
import { InnerCallIdSchema, ProgramIdSchema } from './code-mode.ts';
import { compiled } from './compiled-schema.ts';
import {
  EventIdSchema,
  ExecutionIdSchema,
  HostIdSchema,
  RepairRunIdSchema,
  SessionIdSchema,
  SnapshotIdSchema,
  WebhookIdSchema,
  WorkflowIdSchema,
} from './ids.ts';
import { ExecutionStatusSchema, SessionStateSchema } from './lifecycle.ts';
import { RepairStatusSchema, RepairStopSchema } from './repair.ts';
import { WorkflowStatusSchema } from './workflow.ts';

export const MAX_EVENT_TEXT_CHARACTERS = 1_024;
/** Of an exception's name, which the program chose. */
export const MAX_EVENT_NAME_CHARACTERS = 64;

const ofSession = { session_id: SessionIdSchema };
const State = z.object({ ...ofSession, state: SessionStateSchema, host_id: HostIdSchema.nullable() });

const SESSION_EVENT_DATA = {
  'session.created': State,
  'session.paused': State,
  'session.resumed': State,
  'session.suspended': State,
  'session.migrated': State.extend({ from_host_id: HostIdSchema }),
  /** Of one that goes on elsewhere: from the snapshot, with all that it was since then lost, or from nothing. */
  'session.host_lost': State.extend({
    from_host_id: HostIdSchema,
    snapshot_id: SnapshotIdSchema.nullable(),
    snapshot_created_at: z.iso.datetime().nullable(),
  }),
  /** The workspace of a snapshot that no host could restore is in an empty sandbox, and the session goes on with that. */
  'session.rescued': State.extend({ snapshot_id: SnapshotIdSchema, image: z.string() }),
  'session.error': State.extend({ error: z.object({ code: z.string(), detail: z.string() }) }),
  'session.destroyed': State,
  'execution.accepted': z.object({ ...ofSession, execution_id: ExecutionIdSchema, tool_name: z.string() }),
  'execution.finished': z.object({
    ...ofSession,
    execution_id: ExecutionIdSchema,
    tool_name: z.string(),
    status: ExecutionStatusSchema,
    exit_code: z.int().nullable(),
    signal: z.string().nullable(),
    reason: z.string().nullable(),
    /** What the exception says is output. */
    error: z.object({ name: z.string() }).nullable(),
    state_lost: z.boolean(),
    stdout_bytes: z.int(),
    stderr_bytes: z.int(),
    started_at: z.iso.datetime().nullable(),
    finished_at: z.iso.datetime().nullable(),
    duration_ms: z.number().nullable(),
  }),
  'approval.waiting': z.object({
    ...ofSession,
    execution_id: ExecutionIdSchema,
    tool_name: z.string(),
    requested_by: z.string(),
    expires_at: z.iso.datetime(),
  }),
  'approval.decided': z.object({
    ...ofSession,
    execution_id: ExecutionIdSchema,
    tool_name: z.string(),
    status: ApprovalStatusSchema,
  }),
  'snapshot.created': z.object({
    ...ofSession,
    snapshot_id: SnapshotIdSchema,
    bytes: z.int(),
    stored_bytes: z.int(),
  }),
  'program.waiting': z.object({
    ...ofSession,
    program_id: ProgramIdSchema,
    call: z.object({ id: InnerCallIdSchema, tool_name: z.string() }),
  }),
} as const;

const OTHER_EVENT_DATA = {
  'workflow.finished': z.object({
    workflow_id: WorkflowIdSchema,
    name: z.string().nullable(),
    status: WorkflowStatusSchema,
    reason: z.string().nullable(),
  }),
  'repair_run.finished': z.object({
    ...ofSession,
    repair_run_id: RepairRunIdSchema,
    status: RepairStatusSchema.exclude(['running']),
    stopped_because: RepairStopSchema,
    /** How many were made. */
    attempts: z.int(),
  }),
  'webhook.ping': z.object({ webhook_id: WebhookIdSchema }),
} as const;

export type SessionEventType = keyof typeof SESSION_EVENT_DATA;
export type SessionEventFacts = {
  [Type in SessionEventType]: {
    type: Type;
    data: Omit<z.infer<(typeof SESSION_EVENT_DATA)[Type]>, 'session_id'>;
  };
}[SessionEventType];

const HEAD = {
  /** Stays the same however often the event is told: the `webhook-id` of its messages. */
  id: EventIdSchema,
  timestamp: z.iso.datetime(),
};

/** `n` counts the events of a session from 1: the `id` of each in its stream. */
const numbered = <Type extends string, Data extends z.ZodType>(type: Type, data: Data) =>
  z.object({ ...HEAD, n: z.int().min(1), type: z.literal(type), data });
const unnumbered = <Type extends string, Data extends z.ZodType>(type: Type, data: Data) =>
  z.object({ ...HEAD, type: z.literal(type), data });

export const SessionEventSchema = compiled(
  z.discriminatedUnion('type', [
    numbered('session.created', SESSION_EVENT_DATA['session.created']),
    numbered('session.paused', SESSION_EVENT_DATA['session.paused']),
    numbered('session.resumed', SESSION_EVENT_DATA['session.resumed']),
    numbered('session.suspended', SESSION_EVENT_DATA['session.suspended']),
    numbered('session.migrated', SESSION_EVENT_DATA['session.migrated']),
    numbered('session.host_lost', SESSION_EVENT_DATA['session.host_lost']),
    numbered('session.rescued', SESSION_EVENT_DATA['session.rescued']),
    numbered('session.error', SESSION_EVENT_DATA['session.error']),
    numbered('session.destroyed', SESSION_EVENT_DATA['session.destroyed']),
    numbered('execution.accepted', SESSION_EVENT_DATA['execution.accepted']),
    numbered('execution.finished', SESSION_EVENT_DATA['execution.finished']),
    numbered('approval.waiting', SESSION_EVENT_DATA['approval.waiting']),
    numbered('approval.decided', SESSION_EVENT_DATA['approval.decided']),
    numbered('snapshot.created', SESSION_EVENT_DATA['snapshot.created']),
    numbered('program.waiting', SESSION_EVENT_DATA['program.waiting']),
  ]),
);
export type SessionEvent = z.infer<typeof SessionEventSchema>;

/** Body of a message. */
export const EventSchema = z.union([
  SessionEventSchema,
  unnumbered('workflow.finished', OTHER_EVENT_DATA['workflow.finished']),
  unnumbered('repair_run.finished', OTHER_EVENT_DATA['repair_run.finished']),
  unnumbered('webhook.ping', OTHER_EVENT_DATA['webhook.ping']),
]);
export type Event = z.infer<typeof EventSchema>;

/** What a webhook may ask for; a ping goes to each. */
export const WebhookEventTypeSchema = z.enum([
  'session.created',
  'session.paused',
  'session.resumed',
  'session.suspended',
  'session.migrated',
  'session.host_lost',
  'session.rescued',
  'session.error',
  'session.destroyed',
  'execution.accepted',
  'execution.finished',
  'approval.waiting',
  'approval.decided',
  'snapshot.created',
  'program.waiting',
  'workflow.finished',
  'repair_run.finished',
]);

/** In the place of events that are no longer kept: those from `from` to `to`, both within. */
export const EventGapSchema = z.object({ type: z.literal('gap'), from: z.int(), to: z.int() });

/** Data of the server-sent events of a session. */
export const SessionStreamEventSchema = z.union([SessionEventSchema, EventGapSchema]);
export type SessionStreamEvent = z.infer<typeof SessionStreamEventSchema>;
