/** Snapshots as the API shows them, and what it takes to make one or to fork a session. */
import * as z from 'zod';
import { ImageDigestSchema, SessionIdSchema, SnapshotIdSchema } from './ids.ts';
import { ResourceLimitsSchema, SessionSchema } from './session.ts';
import { SnapshotWorkspaceSchema } from './snapshot.ts';

export const MAX_FORKS = 16;
export const MAX_SNAPSHOT_NAME_LENGTH = 128;

/** Body of `POST /v1/sessions/{id}/snapshots`. */
export const CreateSnapshotSchema = z.strictObject({
  name: z.string().min(1).max(MAX_SNAPSHOT_NAME_LENGTH),
});

/** Body of `POST /v1/sessions/{id}/fork`. */
export const ForkSchema = z.strictObject({
  count: z.int().min(1).max(MAX_FORKS).default(1),
});

export const SnapshotSchema = z.object({
  snapshot_id: SnapshotIdSchema,
  name: z.string(),
  /** The session that it was taken of. */
  session_id: SessionIdSchema,
  /** The snapshot that this session was made of, if any. */
  parent_snapshot_id: SnapshotIdSchema.nullable(),
  image: z.string(),
  image_digest: ImageDigestSchema,
  resource_limits: ResourceLimitsSchema,
  runsc_version: z.string(),
  runsc_platform: z.string(),
  generation: z.int().min(0),
  bytes: z.int().min(0),
  /** What it takes of the quota: compressed and encrypted. */
  stored_bytes: z.int().min(0),
  /** Whether its workspace can be had where no host can restore it: as a tar of so many bytes, or why not. */
  workspace: SnapshotWorkspaceSchema.nullable(),
  created_at: z.iso.datetime(),
});
export type Snapshot = z.infer<typeof SnapshotSchema>;

export const SnapshotListSchema = z.object({
  snapshots: z.array(SnapshotSchema),
  next_cursor: z.string().nullable(),
});
export type SnapshotList = z.infer<typeof SnapshotListSchema>;

export const ForkedSchema = z.object({ sessions: z.array(SessionSchema) });
