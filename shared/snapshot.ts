/**
 * Snapshots: what a checkpoint of a sandbox is made of, and how a host brings it to the edge and has it back. The host
 * cuts the files of a checkpoint into pieces, compresses and encrypts each of them, and puts them to the edge over HTTP;
 * the edge keeps them and sees neither the key in use nor the content.
 */
import * as z from 'zod';
import { CallNumberSchema, MAX_CALLS_OUTSTANDING } from './code-mode.ts';
import {
  ExecutionIdSchema,
  ImageDigestSchema,
  SessionIdSchema,
  Sha256Schema,
  SnapshotIdSchema,
} from './ids.ts';
import { ResourceLimitsSchema } from './session.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** Plain bytes of one piece. */
export const SNAPSHOT_PIECE_BYTES = 4 * MIB;
/** Of a piece as it is stored: what does not compress grows a little, and is sealed. */
export const MAX_STORED_CHUNK_BYTES = SNAPSHOT_PIECE_BYTES + 32 * KIB;
export const MAX_SNAPSHOT_CHUNKS = 16_384;
export const MAX_SNAPSHOT_BYTES = 64 * GIB;
export const MAX_MANIFEST_BYTES = 4 * MIB;
export const MAX_SNAPSHOT_FILES = 64;

export const SNAPSHOT_KEY_BYTES = 32;
export const TRANSFER_TOKEN_LIFETIME_S = 900;
/** For a checkpoint and for all of it to be stored; after it the host gives up and the session runs on. */
export const SUSPEND_TIMEOUT_MS = 600_000;
/** How long the host that stored a snapshot keeps its files as they were, beside what it keeps sealed. */
export const PLAIN_SNAPSHOT_LIFETIME_MS = 300_000;
/** For a sandbox to be made of a snapshot, the way of its bytes included. */
export const RESTORE_TIMEOUT_MS = 180_000;

/**
 * Beside the files of a checkpoint: the workspace as a tar archive, which hosts read that could not go on from the checkpoint.
 * A host of before makes none, and passes it over.
 */
export const WORKSPACE_FILE = 'workspace.tar';

/** What a snapshot has of the workspace beside its checkpoint: so many bytes of tar, or why none. */
export const SnapshotWorkspaceSchema = z.union([
  z.strictObject({ bytes: z.int().min(0) }),
  z.strictObject({ left_out: z.enum(['too_large', 'unreadable']) }),
]);
export type SnapshotWorkspace = z.infer<typeof SnapshotWorkspaceSchema>;

/** A file of the checkpoint. Its pieces, in order, are its content. */
const SnapshotFileSchema = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/),
  bytes: z.int().min(0),
  chunks: z
    .array(
      z.strictObject({
        /** Of the bytes as they are stored: also their name. */
        sha256: Sha256Schema,
        /** Plain bytes. */
        bytes: z.int().min(1).max(SNAPSHOT_PIECE_BYTES),
        stored_bytes: z.int().min(1).max(MAX_STORED_CHUNK_BYTES),
      }),
    )
    .max(MAX_SNAPSHOT_CHUNKS),
});

/** An execution that was under way at the checkpoint: where its streams and its clock stood. */
export const CarriedExecutionSchema = z.strictObject({
  execution_id: ExecutionIdSchema,
  /** Sent to the edge so far; the next frame of the stream begins here. */
  stdout_bytes: z.int().min(0),
  stderr_bytes: z.int().min(0),
  /** Input that the program, or the host in its stead, has taken. */
  stdin_bytes: z.int().min(0),
  timeout_left_ms: z.int().min(0),
  /** Of a program: its calls that have no answer. */
  open_calls: z.array(CallNumberSchema).max(MAX_CALLS_OUTSTANDING).optional(),
});
export type CarriedExecution = z.infer<typeof CarriedExecutionSchema>;
const MAX_CARRIED_EXECUTIONS = 8;
const CarriedExecutionsSchema = z.array(CarriedExecutionSchema).max(MAX_CARRIED_EXECUTIONS);

/** A program of the session that was forked, and the execution as which it goes on in the fork. */
export const ForkedExecutionSchema = z.strictObject({
  execution_id: ExecutionIdSchema,
  as: ExecutionIdSchema,
});
export type ForkedExecution = z.infer<typeof ForkedExecutionSchema>;

/** What a host must have in common with the one that made the checkpoint. */
export const SnapshotRequirementsSchema = z.strictObject({
  image: ImageDigestSchema,
  runsc_version: z.string().min(1).max(64),
  runsc_platform: z.string().min(1).max(64),
  /** Of the sorted names of the CPU's features, one a line. */
  cpu_features_sha256: Sha256Schema,
  /** Of the programs that a host lays into a sandbox. Snapshots of before do not say it: the host that restores compares. */
  guest_sha256: Sha256Schema.optional(),
});
export type SnapshotRequirements = z.infer<typeof SnapshotRequirementsSchema>;

/**
 * All that makes up a snapshot. Its bytes as they were put are what `manifest_sha256` is of: a host that restores trusts
 * what hashes to the digest in its grant.
 */
export const SnapshotManifestSchema = z.strictObject({
  v: z.literal(1),
  snapshot_id: SnapshotIdSchema,
  session_id: SessionIdSchema,
  epoch: z.int().min(1),
  created_at: z.iso.datetime(),
  ...SnapshotRequirementsSchema.shape,
  limits: ResourceLimitsSchema,
  /** Of the guest at the checkpoint; rises with each restore. */
  generation: z.int().min(0),
  files: z.array(SnapshotFileSchema).min(1).max(MAX_SNAPSHOT_FILES),
  executions: CarriedExecutionsSchema,
});
export type SnapshotManifest = z.infer<typeof SnapshotManifestSchema>;

const SnapshotKeySchema = z.string().regex(/^[A-Za-z0-9_-]{43}$/);
const TransferTokenSchema = z.string().min(1).max(4096);

/** Payload of a `suspend` grant. The key and the token are for this snapshot alone. */
export const SuspendPayloadSchema = z.strictObject({
  snapshot_id: SnapshotIdSchema,
  /** base64url, 32 bytes. */
  key: SnapshotKeySchema,
  transfer_token: TransferTokenSchema,
  /** The sandbox goes on as soon as its checkpoint is on the host's disk. */
  leave_running: z.boolean(),
  /** The workspace is stored beside the checkpoint, for hosts that cannot go on from that. */
  workspace: z.literal(true).optional(),
});
export type SuspendPayload = z.infer<typeof SuspendPayloadSchema>;

/** In the payload of an `attach` grant: the sandbox is made of this snapshot. */
export const RestorePayloadSchema = z.strictObject({
  snapshot_id: SnapshotIdSchema,
  manifest_sha256: Sha256Schema,
  key: SnapshotKeySchema,
  transfer_token: TransferTokenSchema,
  /** What the guest finds as its generation from its first instruction on. */
  generation: z.int().min(1),
  /** What ran at the checkpoint goes on under its id, or has ended before `ready`: a fork has no such call. */
  executions: z.enum(['continue', 'stop']),
  /** Beside `stop`: programs that go on all the same, granted by this attach, as executions that begin with it. */
  forks: z.array(ForkedExecutionSchema).max(MAX_CARRIED_EXECUTIONS).optional(),
});
export type RestorePayload = z.infer<typeof RestorePayloadSchema>;

/** In the payload of an `attach` grant: the sandbox begins empty but for the workspace that this snapshot has beside its checkpoint. */
export const RescuePayloadSchema = RestorePayloadSchema.pick({
  snapshot_id: true,
  manifest_sha256: true,
  key: true,
  transfer_token: true,
});
export type RescuePayload = z.infer<typeof RescuePayloadSchema>;

/** Host to edge, numbered like all that it says of a session. */
export const SNAPSHOT_UP_FRAMES = {
  paused: { type: z.literal('paused') },
  resumed: { type: z.literal('resumed') },
  /**
   * All of the snapshot and its manifest are stored. Unless it was to be left running, the sandbox stands still until this
   * frame is acknowledged, which says that the session has moved into the snapshot; then the host ends it without a word.
   */
  suspended: {
    type: z.literal('suspended'),
    snapshot_id: SnapshotIdSchema,
    manifest_sha256: Sha256Schema,
    left_running: z.boolean(),
    /** Plain, and as stored, each chunk once. */
    bytes: z.int().min(0).max(MAX_SNAPSHOT_BYTES),
    stored_bytes: z.int().min(0).max(MAX_SNAPSHOT_BYTES),
    ...SnapshotRequirementsSchema.shape,
    executions: CarriedExecutionsSchema,
    /** Said where it was asked for. */
    workspace: SnapshotWorkspaceSchema.optional(),
  },
  /** The sandbox runs on as it was. */
  suspend_failed: {
    type: z.literal('suspend_failed'),
    snapshot_id: SnapshotIdSchema,
    code: z.string().max(64),
    detail: z.string().max(1024),
  },
} as const;

/** Where a host puts and gets what makes up a snapshot, with the transfer token as bearer. */
export function snapshotChunkPath(snapshotId: string, sha256: string): string {
  return `/hosts/v1/snapshots/${snapshotId}/chunks/${sha256}`;
}

export function snapshotManifestPath(snapshotId: string): string {
  return `/hosts/v1/snapshots/${snapshotId}/manifest`;
}
