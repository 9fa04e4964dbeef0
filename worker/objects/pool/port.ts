/** What others may ask of a pool object. */
import type * as z from 'zod';
import type { Outcome } from '../../../shared/errors.ts';
import type {
  EnrolledSchema,
  EnrollmentTokenSchema,
  EnrollSchema,
  ListedEnrollmentToken,
  OperatorHostSchema,
  PoolSummary,
} from '../../../shared/host-api.ts';

import type { SnapshotRequirements } from '../../../shared/snapshot.ts';
import type { TokenPosition } from './enrollment-token-store.ts';
import type { HostRow, HostTraits } from './store.ts';

export type Enroll = z.infer<typeof EnrollSchema>;
export type Enrolled = z.infer<typeof EnrolledSchema>;
export type EnrollmentToken = z.infer<typeof EnrollmentTokenSchema>;
export type OperatorHost = z.infer<typeof OperatorHostSchema>;

/** Reasons against new sessions on a host that its operator gives and takes back. */
export type OperatorFault = 'cordoned' | 'draining';

/** What a session needs of its host. */
export interface PlacementWish {
  image: string;
  /** Hosts that have refused it. */
  except?: readonly string[];
  /** What a snapshot was made with, which its host must have too. */
  requires?: SnapshotRequirements;
  /** A host that the chosen one must be like, so that a snapshot made there can be restored. */
  like?: string;
  /** Hosts that have something of the session, such as the files of its snapshot. */
  near?: readonly string[];
}

/** With how many hosts the pool has. */
export type Placed = Placement & { hosts: number };

export interface Placement {
  hostId: string;
  imageDigest: string;
}

/** What a host object tells its pool. */
export interface HostReport {
  hostId: string;
  state: OperatorHost['state'];
  sandboxes: number;
  capacity: number;
  degraded: boolean;
  /** Its clock is too far from the edge's. */
  skewed: boolean;
  /** Null: as in the report before. */
  images: { name: string; digest: string }[] | null;
  /** What it restores snapshots with; absent: as in the report before. */
  traits?: HostTraits | undefined;
  lastSeenAtMs: number;
}

/** Whom a snapshot may be restored by. */
export type RestoreWish = Pick<PlacementWish, 'image' | 'except' | 'requires'>;

export interface PoolPort {
  createEnrollmentToken(input: { pool: string }): Promise<Outcome<EnrollmentToken>>;
  /** Those that end last first. */
  listEnrollmentTokens(page: {
    after: TokenPosition | undefined;
    limit: number;
  }): Promise<Outcome<ListedEnrollmentToken[]>>;
  /** No host enrols with it any more; gives it as it is then, for one may have before. */
  revokeEnrollmentToken(tokenId: string): Promise<Outcome<ListedEnrollmentToken>>;
  /** A nonce that any pool of this edge accepts once. */
  challenge(): Promise<Outcome<{ nonce: string }>>;
  enroll(input: Enroll): Promise<Outcome<Enrolled>>;
  /** `image` is a name or a digest. The place is kept for the session until `placed`, or while an attach may take.
   * `except` are hosts that have refused the session. */
  place(input: PlacementWish & { sessionId: string }): Promise<Outcome<Placed>>;
  /** False where hosts live that could take the session, but none that could restore the snapshot. */
  mayRestore(wish: RestoreWish): Promise<boolean>;
  /** Whether a host that lives can go on from the snapshot, be it full or away for a moment. */
  isRestorable(wish: RestoreWish): Promise<boolean>;
  /** Of a pool with many hosts: what to choose from elsewhere. */
  picture(): Promise<Outcome<HostRow[]>>;
  /** The session has its sandbox, or will not have one. */
  placed(input: { sessionId: string }): Promise<Outcome<null>>;
  listHosts(): Promise<Outcome<OperatorHost[]>>;
  summary(): Promise<Outcome<Pick<PoolSummary, 'hosts' | 'sandboxes' | 'capacity' | 'room'>>>;
  /** Takes a host out for good; its key enrols here no more. `not_found` for one that never was in this pool. */
  revokeHost(input: { hostId: string }): Promise<Outcome<null>>;
  /** Gives how many hosts the pool has. */
  reportHost(report: HostReport): Promise<{ hosts: number }>;
  /** What the operator holds against a host of this pool; `not_found` for any other. */
  markHost(input: {
    hostId: string;
    faults: Partial<Record<OperatorFault, boolean>>;
  }): Promise<Outcome<OperatorHost>>;
  /** Receipts of this host were refused again and again: it gets no sessions until it enrols anew. */
  distrustHost(input: { hostId: string }): Promise<void>;
}
