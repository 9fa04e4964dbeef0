/** An execution: the request for one, its result, and the events of its stream. */
import * as z from 'zod';
import { ApprovalSchema } from './approval.ts';
import { CallbackSchema } from './callback.ts';
import { compiled } from './compiled-schema.ts';
import { EnvelopeSchema } from './dsse.ts';
import { ExecutionIdSchema, SessionIdSchema, Sha256Schema } from './ids.ts';
import { ExecutionStatusSchema } from './lifecycle.ts';
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS } from './limits.ts';
import { RollbackPolicySchema } from './rollback.ts';
import { ShellStandingSchema } from './shell-standing.ts';

/** Body of `POST /v1/sessions/{id}/execute`. `arguments` is checked against the tool's own schema afterwards. */
export const ExecuteSchema = compiled(
  z.strictObject({
    tool_name: z.string().min(1).max(128),
    arguments: z.record(z.string(), z.unknown()).default({}),
    timeout_ms: z.int().min(1).max(MAX_TIMEOUT_MS).default(DEFAULT_TIMEOUT_MS),
    stream: z.boolean().default(false),
    detach: z.boolean().default(false),
    callback: CallbackSchema.optional().describe('Only with `detach`: is told when the execution has ended.'),
    /** Whether standard input stays open to be written to; by default only where the call streams or is detached. */
    stdin: z.boolean().optional(),
    /** How `stdout` and `stderr` are given: text with U+FFFD for bytes that are not UTF-8, or base64. */
    encoding: z.enum(['utf-8', 'base64']).default('utf-8'),
    rollback: RollbackPolicySchema.optional().describe(
      '`on_failure`: the call runs alone, and where it ends as failed, timeout, oom or crashed the session is as it was before it. By default what the session says.',
    ),
  }),
);
export type Execute = z.infer<typeof ExecuteSchema>;

export const StreamNameSchema = z.enum(['stdout', 'stderr']);
export type StreamName = z.infer<typeof StreamNameSchema>;

export const ProgramErrorSchema = z.object({
  name: z.string(),
  message: z.string(),
  traceback: z.string(),
});
export type ProgramError = z.infer<typeof ProgramErrorSchema>;

/** `data` is text for `text/*`, `application/json` and `image/svg+xml`, base64 for everything else. */
export const RichResultSchema = z.object({ mime: z.string(), data: z.string() });
export type RichResult = z.infer<typeof RichResultSchema>;

/** What a host says of an execution that ended; the bytes of its streams travel beside it. */
export const ExecutionOutcomeSchema = z.object({
  status: ExecutionStatusSchema,
  exit_code: z.int().nullable(),
  signal: z.string().nullable(),
  error: ProgramErrorSchema.nullable(),
  /** Why a `refused` execution was refused. */
  reason: z.string().nullable(),
  state_lost: z.boolean(),
  stdout_bytes: z.int().min(0),
  stderr_bytes: z.int().min(0),
  started_at: z.iso.datetime().nullable(),
  finished_at: z.iso.datetime(),
  duration_ms: z.number().min(0),
  /** Where the shell stands now, if it is not where the host said it was. Hosts of former versions do not say it. */
  shell: ShellStandingSchema.optional(),
});
export type ExecutionOutcome = z.infer<typeof ExecutionOutcomeSchema>;

/** A stream that is longer than a result holds: so much of it is kept from its beginning on, and can be read at `url`. */
export const StoredStreamSchema = z.object({
  bytes: z.int().min(0),
  stored_bytes: z.int().min(0),
  /** Of all of it, as the receipt says; null where not all of it is kept. */
  sha256: Sha256Schema.nullable(),
  url: z.string(),
});

/** The result of an execution, and its view while it is not terminal (then the nullable fields are null). */
export const ExecutionSchema = z.object({
  execution_id: ExecutionIdSchema,
  session_id: SessionIdSchema,
  tool_name: z.string(),
  /** The program that made the call. */
  parent_execution_id: ExecutionIdSchema.optional(),
  status: ExecutionStatusSchema,
  exit_code: z.int().nullable(),
  signal: z.string().nullable(),
  stdout: z.string(),
  stderr: z.string(),
  encoding: z.enum(['utf-8', 'base64']),
  /** Whether either stream is given as head and tail only. */
  truncated: z.boolean(),
  stdout_bytes: z.int(),
  stderr_bytes: z.int(),
  /** A text longer than its limit is cut and ends with `… [n of m characters]`. */
  value: z.string().nullable(),
  /** What the tool gives as data: the answer of `file`, and what registered tools give. */
  structured: z.unknown().nullable(),
  /** In the place of one that is left out for its size stands a `text/plain` in brackets that names it. */
  results: z.array(RichResultSchema),
  error: ProgramErrorSchema.nullable(),
  reason: z.string().nullable(),
  state_lost: z.boolean(),
  /** Whether the session was taken back to where it was before this call. */
  rolled_back: z.boolean().optional(),
  /** Whether what it wrote and gave is kept no longer, by the retention of its tenant; of an error only the name is left. */
  content_expired: z.boolean().optional(),
  created_at: z.iso.datetime(),
  started_at: z.iso.datetime().nullable(),
  finished_at: z.iso.datetime().nullable(),
  duration_ms: z.number().nullable(),
  timings_ms: z.object({ admit: z.number(), place: z.number(), exec: z.number() }).nullable(),
  receipt: EnvelopeSchema.nullable(),
  /** Where a stream is longer than what `stdout` or `stderr` holds. */
  output: z
    .object({ stdout: StoredStreamSchema.optional(), stderr: StoredStreamSchema.optional() })
    .optional(),
  /** Of one that waits for an approval, or was refused for want of it. */
  approval: ApprovalSchema.optional(),
});
export type Execution = z.infer<typeof ExecutionSchema>;

/**
 * Position in an execution's event stream: bytes of stdout and stderr delivered, and other events delivered.
 * It is the `id` of each SSE event, so any mix of reconnects continues at the next byte.
 */
export interface EventCursor {
  executionId: string;
  stdoutBytes: number;
  stderrBytes: number;
  otherEvents: number;
}

export function formatCursor(cursor: EventCursor): string {
  return `${cursor.executionId}:${cursor.stdoutBytes}:${cursor.stderrBytes}:${cursor.otherEvents}`;
}

export function parseCursor(text: string): EventCursor | undefined {
  const match = /^(exe_[A-Za-z0-9_-]{22}):(\d{1,15}):(\d{1,15}):(\d{1,6})$/.exec(text);
  if (match?.[1] === undefined) return undefined;
  return {
    executionId: match[1],
    stdoutBytes: Number(match[2]),
    stderrBytes: Number(match[3]),
    otherEvents: Number(match[4]),
  };
}

/**
 * Data of the SSE events, by event name. `gap` says which bytes of a stream can no longer be had; `paused` that the session
 * stands still, behind all that was written before, and `resumed` that it goes on.
 */
export const StreamEventSchema = z.discriminatedUnion('event', [
  z.object({ event: z.literal('started'), execution_id: ExecutionIdSchema, started_at: z.iso.datetime() }),
  z.object({
    event: z.enum(['stdout', 'stderr']),
    offset: z.int(),
    text: z.string(),
    /** Given instead of faithful text when the request asked for base64. */
    encoding: z.enum(['utf-8', 'base64']),
  }),
  z.object({ event: z.literal('gap'), stream: StreamNameSchema, from: z.int(), to: z.int() }),
  z.object({ event: z.enum(['paused', 'resumed']), at: z.iso.datetime() }),
  /** Nothing of the call runs before somebody approves it; told again to each reader. */
  z.object({ event: z.literal('waiting'), approval: ApprovalSchema }),
  /** What the MCP server that runs the call says of it meanwhile; not kept. */
  z.object({
    event: z.literal('progress'),
    /** Of a call that the program made: which. */
    id: z.string().optional(),
    tool_name: z.string().optional(),
    progress: z.number(),
    total: z.number().nullable(),
    message: z.string().nullable(),
  }),
  /** A call of a program that whoever began it executes, and answers at `…/tool_results`. */
  z.object({
    event: z.literal('tool_call'),
    id: z.string(),
    tool_name: z.string(),
    /** Null where they are no longer kept. */
    arguments: z.record(z.string(), z.unknown()).nullable(),
  }),
  z.object({ event: z.literal('result'), mime: z.string(), data: z.string() }),
  z.object({ event: z.literal('end'), execution: ExecutionSchema }),
]);
export type StreamEvent = z.infer<typeof StreamEventSchema>;
