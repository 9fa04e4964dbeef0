/** A snapshot as the API shows it. */
import type { Snapshot } from '../../../shared/snapshot-resource.ts';
import type { SnapshotFacts } from './port.ts';

export function snapshotView(
  facts: SnapshotFacts,
  { name, createdAtMs }: { name: string; createdAtMs: number },
): Snapshot {
  const { requirements } = facts;
  return {
    snapshot_id: facts.snapshotId,
    name,
    session_id: facts.sessionId,
    parent_snapshot_id: facts.parentSnapshotId,
    image: facts.image,
    image_digest: facts.imageDigest,
    resource_limits: facts.limits,
    runsc_version: requirements.runsc_version,
    runsc_platform: requirements.runsc_platform,
    generation: facts.generation,
    bytes: facts.bytes,
    stored_bytes: facts.storedBytes,
    workspace: facts.workspace ?? null,
    created_at: new Date(createdAtMs).toISOString(),
  };
}
