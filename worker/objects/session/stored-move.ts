/** Looks in the storage for the snapshot of a move whose host did not say what came of it. */
import type { SequencedUp } from '../../../shared/frames.ts';
import type { SnapshotManifest } from '../../../shared/snapshot.ts';
import type { Env } from '../../env.ts';
import { findManifest } from '../../snapshots/storage.ts';
import type { SessionRow } from './session-row.ts';
import { requirementsOf } from './snapshot-records.ts';

const TRIES = 5;
const PAUSE_MS = 1_000;

export interface StoredMove {
  /** What its host would have said, without the calls that were under way. */
  frame: Extract<SequencedUp, { type: 'suspended' }>;
  /** Whether there were any. */
  hadCalls: boolean;
}

/** Undefined where it is not stored as a whole, or the session has given it up meanwhile. */
export async function storedMove(
  row: SessionRow,
  env: Env,
  snapshotId: string,
): Promise<StoredMove | undefined> {
  const { facts, epoch } = row.record;
  const place = { tenant: facts.tenant, snapshotId };
  for (let tries = 1; row.record.pendingSnapshot?.snapshotId === snapshotId; tries += 1) {
    const found = await findManifest(env.SNAPSHOTS, place);
    if (found.ok) {
      const isIts = found.value?.manifest.session_id === facts.sessionId;
      return found.value !== null && isIts && found.value.manifest.epoch === epoch
        ? moveOf(found.value)
        : undefined;
    }
    if (tries === TRIES) return undefined;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return undefined;
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
