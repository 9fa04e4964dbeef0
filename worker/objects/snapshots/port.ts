/** What others may ask of the object that knows the snapshots of one tenant. */
import * as z from 'zod';
import type { Outcome } from '../../../shared/errors.ts';
import { ImageDigestSchema, SessionIdSchema, SnapshotIdSchema } from '../../../shared/ids.ts';
import { ResourceLimitsSchema } from '../../../shared/session.ts';
import { ShellStandingSchema } from '../../../shared/shell-standing.ts';
import { SnapshotRequirementsSchema, SnapshotWorkspaceSchema } from '../../../shared/snapshot.ts';
import type { SnapshotList } from '../../../shared/snapshot-resource.ts';
import { StoredNetworkSchema } from '../session/rows/records.ts';

/**
 * `named`: of a user. `fork`: of a fork under way. `suspension`: where a suspended session is. `restore_point`: of a session
 * before one of its executions.
 */
export const SnapshotKindSchema = z.enum(['named', 'fork', 'suspension', 'restore_point']);
export type SnapshotKind = z.infer<typeof SnapshotKindSchema>;

/** All that a session needs to be made of a snapshot. The secrets of its network are sealed for the snapshot. */
export const SnapshotFactsSchema = z.object({
  snapshotId: SnapshotIdSchema,
  manifestSha256: z.string(),
  sessionId: SessionIdSchema,
  parentSnapshotId: SnapshotIdSchema.nullable(),
  image: z.string(),
  imageDigest: ImageDigestSchema,
  pool: z.string(),
  limits: ResourceLimitsSchema,
  environment: z.record(z.string(), z.string()),
  network: StoredNetworkSchema.nullable(),
  requirements: SnapshotRequirementsSchema,
  generation: z.number(),
  bytes: z.number(),
  storedBytes: z.number(),
  /** Where the shell stands in it; null: where the session began, or nobody said. */
  shell: ShellStandingSchema.nullable().default(null),
  /** Not said by hosts of before, and of those that no user named. */
  workspace: SnapshotWorkspaceSchema.optional(),
});
export type SnapshotFacts = z.infer<typeof SnapshotFactsSchema>;

export interface NewSnapshot {
  snapshotId: string;
  sessionId: string;
  tenant: string;
  subject: string;
  kind: SnapshotKind;
  name: string;
}

export interface NamedSnapshot {
  name: string;
  createdAtMs: number;
  facts: SnapshotFacts;
}

export interface SnapshotsPort {
  /** Takes a place of the quota. What is never completed goes by itself. */
  begin(snapshot: NewSnapshot): Promise<Outcome<null>>;
  complete(facts: SnapshotFacts): Promise<void>;
  /** A named one of this subject. */
  find(subject: string, snapshotId: string): Promise<Outcome<NamedSnapshot>>;
  list(input: {
    subject: string;
    cursor?: string | undefined;
    limit: number;
  }): Promise<Outcome<SnapshotList>>;
  /** A named one of this subject; its bytes go soon. */
  remove(subject: string, snapshotId: string): Promise<Outcome<null>>;
  /** Before sessions are made of a fork: should nobody say how that ended, they end after a while. */
  beginFork(fork: { snapshotId: string; children: string[] }): Promise<Outcome<null>>;
  /** All of them are there, and stay; or there is nothing to keep of them. Nobody needs the fork any more. */
  endFork(fork: { snapshotId: string; isWhole: boolean }): Promise<Outcome<null>>;
  /** One of this session that nothing needs any more. What a user named stays, once it is whole. */
  release(snapshot: { sessionId: string; snapshotId: string }): Promise<void>;
}
