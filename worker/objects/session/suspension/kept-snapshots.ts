/** The snapshots that a session needs, for the index of its tenant that asks. */
import type { SnapshotFacts } from '../../snapshots/port.ts';
import type { Lineage } from '../lineage/lineage.ts';
import type { RestorePoints } from '../restore-points/restore-points.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { Suspension } from './suspension.ts';

interface KeptParts {
  readonly row: SessionRow;
  readonly restorePoints: RestorePoints;
  readonly lineage: Lineage;
  readonly suspension: Suspension;
}

/** Whether the next sandbox of the session is made of it. */
export function isHeld({ row }: KeptParts, snapshotId: string): boolean {
  return row.isLive && row.maybe?.snapshot?.snapshotId === snapshotId;
}

/** What one is that the session has moved into, or may go back to; null where it is neither. */
export async function keptSnapshot(
  { row, restorePoints, lineage, suspension }: KeptParts,
  snapshotId: string,
): Promise<SnapshotFacts | null> {
  if (!row.isLive) return null;
  const held = row.maybe?.snapshot;
  const isOwn = held?.isOwn === true && held.snapshotId === snapshotId;
  const kept = isOwn ? held : (restorePoints.find(snapshotId) ?? lineage.find(snapshotId));
  if (kept === undefined) return null;
  const { manifestSha256, bytes, storedBytes, requirements, shell } = kept;
  const stored = {
    snapshot_id: snapshotId,
    manifest_sha256: manifestSha256,
    bytes,
    stored_bytes: storedBytes,
  };
  return suspension.records.factsOf({ ...stored, ...requirements }, shell);
}
