/** Looks in the storage for the snapshot of a move whose host did not say what came of it. */
import { type Outcome, success } from '../../../../shared/errors.ts';
import type { SequencedUp } from '../../../../shared/frames.ts';
import type { SnapshotManifest } from '../../../../shared/snapshot.ts';
import type { Env } from '../../../env.ts';
import { findManifest } from '../../../snapshots/storage.ts';
import type { SessionRow } from '../rows/session-row.ts';
import { requirementsOf } from './snapshot-records.ts';

export interface StoredMove {
  /** What its host would have said, without the calls that were under way. */
  frame: Extract<SequencedUp, { type: 'suspended' }>;
  /** Whether there were any. */
  hadCalls: boolean;
}

/** Null where it is not stored as a whole; fails where the storage does not say. */
export async function storedMove(
  row: SessionRow,
  env: Env,
  snapshotId: string,
): Promise<Outcome<StoredMove | null>> {
  const { facts, epoch } = row.record;
  const found = await findManifest(env.SNAPSHOTS, { tenant: facts.tenant, snapshotId });
  if (!found.ok) return found;
  const isIts = found.value?.manifest.session_id === facts.sessionId;
  return success(
    found.value !== null && isIts && found.value.manifest.epoch === epoch ? moveOf(found.value) : null,
  );
}

function moveOf({ manifest, sha256 }: { manifest: SnapshotManifest; sha256: string }): StoredMove {
  const { snapshot_id, epoch, files } = manifest;
  const chunks = files.flatMap((file) => file.chunks);
  const stored = new Map(chunks.map((chunk) => [chunk.sha256, chunk.stored_bytes]));
  return {
    frame: {
      type: 'suspended',
      epoch,
      seq: 1,
      snapshot_id,
      manifest_sha256: sha256,
      left_running: false,
      bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
      stored_bytes: [...stored.values()].reduce((sum, bytes) => sum + bytes, 0),
      ...requirementsOf(manifest),
      executions: [],
    },
    hadCalls: manifest.executions.length > 0,
  };
}
