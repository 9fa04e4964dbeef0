/** Rows of the session object as the rest of it sees them. Times are milliseconds since the epoch unless text. */
import * as z from 'zod';
import { ArgumentConstraintSchema } from '../../../../shared/argument-constraint.ts';
import { ProgramErrorSchema, type StreamName } from '../../../../shared/execution.ts';
import { RelaySchema } from '../../../../shared/grant.ts';
import {
  ExecutionIdSchema,
  HostIdSchema,
  ImageDigestSchema,
  SessionIdSchema,
} from '../../../../shared/ids.ts';
import { ExecutionStatusSchema, SessionStateSchema } from '../../../../shared/lifecycle.ts';
import { NetworkViewSchema } from '../../../../shared/network.ts';
import { RollbackPolicySchema } from '../../../../shared/rollback.ts';
import { ResourceLimitsSchema } from '../../../../shared/session.ts';
import { ShellStandingSchema } from '../../../../shared/shell-standing.ts';
import { HeldSnapshotSchema, PendingSnapshotSchema } from '../suspension/held-snapshot.ts';

export const Flag = z.number().transform((value) => value === 1);

export function json<T>(schema: z.ZodType<T>) {
  return z.string().transform((text): T => schema.parse(JSON.parse(text)));
}

/** The way out of a session as it is kept: what it may show, and the secrets of `inject`, sealed. */
export const StoredNetworkSchema = NetworkViewSchema.extend({ secrets: z.string().nullable().default(null) });
export type StoredNetwork = z.infer<typeof StoredNetworkSchema>;

/** What of a session changes by request at most. */
const SessionFactsSchema = z.object({
  sessionId: SessionIdSchema,
  tenant: z.string(),
  subject: z.string(),
  image: z.string(),
  imageDigest: ImageDigestSchema,
  pool: z.string(),
  hostId: HostIdSchema,
  limits: ResourceLimitsSchema,
  environment: z.record(z.string(), z.string()),
  network: StoredNetworkSchema.nullable().default(null),
  metadata: z.record(z.string(), z.string()),
  labels: z.record(z.string(), z.string()).default({}),
  idleTimeoutMs: z.number(),
  onHostLoss: z.enum(['fail', 'rebuild']).default('fail'),
  rollback: RollbackPolicySchema.default('never'),
  suspendAfterIdleMs: z.number().nullable().default(null),
  /** What the session began with. */
  fromSnapshot: z.object({ snapshotId: z.string(), sessionId: z.string() }).nullable().default(null),
  createdAtMs: z.number(),
  ephemeral: z.boolean(),
});
export type SessionFacts = z.infer<typeof SessionFactsSchema>;

/**
 * `attaching`: an attach was sent and its link has not said `ready`. `ready`: there is a sandbox, its link may be down.
 * `lost`: the sandbox is gone, the next call gets a new one. `destroyed`: it is known to be gone for good.
 */
const SandboxStateSchema = z.enum(['attaching', 'ready', 'lost', 'destroyed']);
export type SandboxState = z.infer<typeof SandboxStateSchema>;

export const SessionRecordSchema = z.object({
  facts: json(SessionFactsSchema),
  state: SessionStateSchema,
  errorCode: z.string().nullable(),
  errorDetail: z.string().nullable(),
  epoch: z.number(),
  grantSeq: z.number(),
  sandbox: SandboxStateSchema,
  sandboxId: z.string().nullable(),
  /** When the attach under way was sent. */
  attachAtMs: z.number().nullable(),
  /** The host's key, pinned at its first link. */
  hostKeyX: z.string().nullable(),
  /** Whether the next execution has to say that the state of the session was lost. */
  stateLost: Flag,
  linkDownAtMs: z.number().nullable(),
  /** Since when everything of the session stands still. */
  pausedAtMs: z.number().nullable(),
  /** What the next sandbox is made of: of a suspended session, where it is. */
  snapshot: json(HeldSnapshotSchema).nullable(),
  /** The one that the host was told to make and has not answered for. */
  pendingSnapshot: json(PendingSnapshotSchema).nullable(),
  /** Rises each time that a sandbox is made of a snapshot; the guest can read it. */
  generation: z.number(),
  streamId: z.string().nullable(),
  lastSeq: z.number(),
  chainSeq: z.number(),
  chainSha256: z.string(),
  lastActivityAtMs: z.number(),
  /** When its lifetime is over; null for one that has no end. */
  expiresAtMs: z.number().nullable(),
  /** When to tell the host once more to destroy the sandbox, and how often it was told. */
  destroyAtMs: z.number().nullable(),
  destroyTries: z.number(),
  /** When what is left of a destroyed session goes. */
  purgeAtMs: z.number().nullable(),
  /** When to let go next what its tenant wants kept no longer; null before its first call. */
  retentionAtMs: z.number().nullable(),
  /** Where its shell stands in the sandbox that it has, or in the snapshot that it is in; null: where it began. */
  shell: json(ShellStandingSchema).nullable(),
});
export type SessionRecord = z.infer<typeof SessionRecordSchema>;

export const GrantReferenceSchema = z.object({ jti: z.string(), sha256: z.string(), seq: z.number() });
export type GrantReference = z.infer<typeof GrantReferenceSchema>;

/** A registered tool that runs through a built-in one: its value is the JSON of what it gave. */
export const CalledAsSchema = z.strictObject({ name: z.string(), version: z.string() });
export type CalledAs = z.infer<typeof CalledAsSchema>;

/** Bytes of input: sent to the host, taken by the program, and sent on a link that was lost before they were taken. */
const InputStateSchema = z.object({
  sentBytes: z.number(),
  takenBytes: z.number(),
  doubtfulBytes: z.number(),
  closed: z.boolean(),
});
export type InputState = z.infer<typeof InputStateSchema>;

export const ExecutionRecordSchema = z.object({
  n: z.number(),
  executionId: ExecutionIdSchema,
  tool: z.string(),
  toolVersion: z.string(),
  calledAs: json(CalledAsSchema).nullable(),
  /** What its arguments were held to; null where to nothing. */
  constraints: json(z.array(ArgumentConstraintSchema)).nullable(),
  /** The program that made the call. */
  parentId: z.string().nullable(),
  /** JSON; gone once the execution has ended. */
  arguments: z.string().nullable(),
  argsSha256: z.string(),
  timeoutMs: z.number(),
  relay: RelaySchema,
  stdin: Flag,
  encoding: z.enum(['utf-8', 'base64']),
  status: ExecutionStatusSchema,
  idempotencyKey: z.string().nullable(),
  fingerprint: z.string().nullable(),
  requestId: z.string(),
  epoch: z.number(),
  grants: json(z.array(GrantReferenceSchema)),
  createdAtMs: z.number(),
  sentAtMs: z.number().nullable(),
  deadlineAtMs: z.number().nullable(),
  startedAt: z.string().nullable(),
  finishedAt: z.string().nullable(),
  durationMs: z.number().nullable(),
  exitCode: z.number().nullable(),
  signal: z.string().nullable(),
  error: json(ProgramErrorSchema).nullable(),
  reason: z.string().nullable(),
  stateLost: Flag,
  stdoutBytes: z.number(),
  stderrBytes: z.number(),
  admitMs: z.number(),
  placeMs: z.number(),
  interruptRequested: Flag,
  /** Null until somebody writes to it. */
  input: json(InputStateSchema).nullable(),
  /** Whether the host, or nobody, vouches for output that is not here. */
  truncated: Flag,
  /** Bytes of its output and results in rows. */
  contentBytes: z.number(),
  /** Of one with a stream longer than a result holds: bytes of each that are kept whole, from the first one on. */
  stored: json(z.object({ stdout: z.number(), stderr: z.number() })).nullable(),
  /** Place of its receipt in the chain. */
  receiptSeq: z.number().nullable(),
  /** It runs alone, behind a snapshot, and is taken back where it fails. */
  rollback: Flag,
  rolledBack: Flag,
  /** What it wrote and gave is kept no longer. */
  expired: Flag,
});
export type ExecutionRecord = z.infer<typeof ExecutionRecordSchema>;

/**
 * Whether an execution has still to be sent: it is queued, or its sandbox was lost before it started. Such a one is
 * `granted` without a deadline.
 */
export function isToBeSent({ status, deadlineAtMs }: ExecutionRecord): boolean {
  return status === 'queued' || (status === 'granted' && deadlineAtMs === null);
}

export interface OutputPiece {
  stream: StreamName;
  offset: number;
  bytes: Uint8Array;
}

/** A piece of a value, of structured data or of a rich result, in order of arrival. */
export const PartPieceSchema = z.object({
  field: z.enum(['value', 'structured', 'result']),
  idx: z.number(),
  mime: z.string(),
  last: Flag,
  bytes: z.instanceof(ArrayBuffer).transform((buffer): Uint8Array => new Uint8Array(buffer)),
});
export type PartPiece = z.infer<typeof PartPieceSchema>;
