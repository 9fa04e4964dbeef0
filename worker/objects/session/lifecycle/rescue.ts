/** Goes on with the workspace alone of a suspended session that no host can restore. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import type { Env } from '../../../env.ts';
import type { SessionRuntime } from '../runtime.ts';
import { hasWorkspace, isBeyondRestoring } from '../suspension/rescuable.ts';

/** Where a host can restore the session after all, it is restored. Where the rescue fails too, it is where it was. */
export async function rescueSession(
  { row, waking }: Pick<SessionRuntime, 'row' | 'waking'>,
  env: Env,
  image: string | undefined,
): Promise<Outcome<null>> {
  const woken = await waking.wake();
  if (woken.ok) return success(null);
  if (!(await isBeyondRestoring(row, env, woken, { anyImage: image !== undefined }))) return woken;
  const { facts, snapshot } = row.record;
  if (snapshot === null) return woken;
  if (!(await hasWorkspace(env, { ...facts, ...snapshot }))) {
    return failure(woken.code, `${woken.detail}; the snapshot has no workspace of its own`);
  }
  // Somebody else's attempt ends as it began; what it comes to decides.
  if (waking.isUnderWay) return rescueSession({ row, waking }, env, image);
  const isStill = row.record.state === 'suspended' && row.record.snapshot?.snapshotId === snapshot.snapshotId;
  if (!isStill) return woken;
  const { imageDigest } = facts;
  return waking.wake(
    image === undefined ? { image: facts.image, imageDigest } : { image, imageDigest: null },
  );
}
