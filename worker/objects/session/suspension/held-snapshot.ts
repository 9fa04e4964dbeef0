/** Snapshots in the rows of a session: the one that its sandbox is made of next, and the one that is being made. */
import * as z from 'zod';
import { ImageDigestSchema, SessionIdSchema, SnapshotIdSchema } from '../../../../shared/ids.ts';
import { ShellStandingSchema } from '../../../../shared/shell-standing.ts';
import {
  CarriedExecutionSchema,
  ForkedExecutionSchema,
  PLAIN_SNAPSHOT_LIFETIME_MS,
  SnapshotRequirementsSchema,
} from '../../../../shared/snapshot.ts';

const RescueSchema = z.object({ image: z.string(), imageDigest: ImageDigestSchema.nullable() });
export type Rescue = z.infer<typeof RescueSchema>;

export const HeldSnapshotSchema = z.object({
  snapshotId: SnapshotIdSchema,
  manifestSha256: z.string(),
  /** The session that it was taken of. */
  sessionId: SessionIdSchema,
  requirements: SnapshotRequirementsSchema,
  executions: z.array(CarriedExecutionSchema),
  generation: z.number(),
  bytes: z.number(),
  storedBytes: z.number(),
  /** Where the shell stands in it; null: where the session began, or nobody said. */
  shell: ShellStandingSchema.nullable().default(null),
  atMs: z.number(),
  /** Programs of that session that go on in this one. */
  forks: z.array(ForkedExecutionSchema).default([]),
  /** Whether it is where this session is; else it is what the session began with. */
  isOwn: z.boolean(),
  /** Whether the calls that were under way in it have ended here: they are stopped before the session goes on. */
  isStopped: z.boolean().default(false),
  /**
   * No host can go on from it: its workspace alone goes into an empty sandbox, of this image. Where that is asked for by name,
   * the digest is what the host has by that name.
   */
  rescue: RescueSchema.extend({
    /** Of one that somebody asked for, until the session runs: what this is again where it fails. */
    before: RescueSchema.nullable().optional(),
  })
    .nullable()
    .default(null),
  /** Of one that was to come back: when that is tried again, and how often it was tried. */
  wake: z.object({ atMs: z.number(), tries: z.number() }).nullable().default(null),
});
export type HeldSnapshot = z.infer<typeof HeldSnapshotSchema>;

/** Whether the host that stored it may keep its files as they were. */
export function mayLiePlain(snapshot: HeldSnapshot | null, nowMs: number): boolean {
  return snapshot?.isOwn === true && nowMs < snapshot.atMs + PLAIN_SNAPSHOT_LIFETIME_MS;
}

export const PendingSnapshotSchema = z.object({
  snapshotId: SnapshotIdSchema,
  leaveRunning: z.boolean(),
  /** Whether the workspace is stored beside the checkpoint, by a host that can. */
  workspace: z.boolean().default(false),
  atMs: z.number(),
  /** Whether the host may have been told: an eviction may come before that. */
  isSent: z.boolean().default(true),
  /** Its host will not say what came of it, for this reason, and the storage has not said yet. */
  unsure: z.string().nullable().default(null),
});
export type PendingSnapshot = z.infer<typeof PendingSnapshotSchema>;
