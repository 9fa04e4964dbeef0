/** Whether a snapshot that cannot be restored has a workspace that can be had all the same. */
import type { ErrorCode, Failure } from '../../../../shared/errors.ts';
import { WORKSPACE_FILE } from '../../../../shared/snapshot.ts';
import type { Env } from '../../../env.ts';
import { readManifest } from '../../../snapshots/storage.ts';
import type { SessionRow } from '../rows/session-row.ts';

/** Refusals that no other host, and no later moment, would take back. */
const FOR_GOOD: ReadonlySet<ErrorCode> = new Set([
  'snapshot_mismatch',
  'snapshot_damaged',
  'restore_failed',
  'image_not_found',
]);

/**
 * Whether what was refused so cannot be had of the hosts that there are now, be it that a dead one would have fitted. For who is
 * content with another image it is enough that no host that lives has the session's own.
 */
export async function isBeyondRestoring(
  row: SessionRow,
  env: Env,
  why: Failure,
  { anyImage = false } = {},
): Promise<boolean> {
  const { state, snapshot, facts } = row.record;
  if (state !== 'suspended' || snapshot === null) return false;
  if (why.code !== 'no_host_available') return FOR_GOOD.has(why.code);
  const { requirements: requires } = snapshot;
  const wish = { image: requires.image, requires };
  const pool = env.POOL.getByName(facts.pool);
  return !(await (anyImage ? pool.isRestorable(wish) : pool.mayRestore(wish)));
}

/** False also where the storage does not say. */
export async function hasWorkspace(
  env: Env,
  { tenant, snapshotId, manifestSha256 }: { tenant: string; snapshotId: string; manifestSha256: string },
): Promise<boolean> {
  const manifest = await readManifest(env.SNAPSHOTS, { tenant, snapshotId }, manifestSha256);
  return manifest.ok && manifest.value.files.some(({ name }) => name === WORKSPACE_FILE);
}

/** The same refusal, which says that the workspace can be had where that is so. */
export async function withRescue(row: SessionRow, env: Env, why: Failure): Promise<Failure> {
  const { snapshot, facts } = row.record;
  if (snapshot === null || snapshot.rescue !== null) return why;
  try {
    if (!(await isBeyondRestoring(row, env, why))) return why;
    return (await hasWorkspace(env, { ...facts, ...snapshot })) ? rescuable(why) : why;
  } catch {
    return why;
  }
}

export function rescuable(why: Failure): Failure {
  return { ...why, detail: `${why.detail}; its workspace can be had with "rescue": "workspace"` };
}
