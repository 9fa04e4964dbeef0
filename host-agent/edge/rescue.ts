/** Makes an empty sandbox, and puts into it the workspace that a snapshot has beside a checkpoint which no host can go on from. */
import { utf8 } from '../../shared/encoding.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { WORKDIR } from '../../shared/session.ts';
import { RESTORE_TIMEOUT_MS, type RescuePayload } from '../../shared/snapshot.ts';
import type { Sandbox, SandboxConfig, Sandboxes } from '../sandbox/port.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { Restored } from './restoration.ts';

export interface RescueParts {
  sandboxes: Sandboxes;
  snapshots: Snapshots;
}

/** Where it fails nothing is left of it here, and the snapshot is what it was. */
export async function rescueSession(
  { sandboxes, snapshots }: RescueParts,
  config: SandboxConfig,
  from: RescuePayload,
): Promise<Outcome<Restored>> {
  let sandbox: Sandbox | undefined;
  try {
    const signal = AbortSignal.timeout(RESTORE_TIMEOUT_MS);
    const workspace = await snapshots.workspace(from, signal);
    if (!workspace.ok) return workspace;
    const started = await sandboxes.start(config);
    if (!started.ok) return started;
    sandbox = started.value;
    const failed = await fill(sandbox, workspace.value, signal);
    if (failed === undefined) return success({ sandbox, session: sessionOf(from) });
    await sandbox.destroy();
    return failed;
  } catch (error: unknown) {
    await sandbox?.destroy();
    return failure('restore_failed', error instanceof Error ? error.message : 'nothing was rescued');
  }
}

async function fill(
  { files }: Sandbox,
  workspace: AsyncIterable<Outcome<Uint8Array>>,
  signal: AbortSignal,
): Promise<Failure | undefined> {
  let unread: Failure | undefined;
  async function* content(): AsyncGenerator<Uint8Array> {
    for await (const piece of workspace) {
      if (!piece.ok) {
        unread = piece;
        throw new Error(piece.detail);
      }
      yield piece.value;
    }
  }
  const extracted = await files.extract({
    path: utf8(WORKDIR),
    signal,
    onBegin: () => undefined,
    content: content(),
  });
  if (unread !== undefined) return unread;
  return extracted.ok ? undefined : failure('restore_failed', 'the workspace was not extracted');
}

/** Nothing ran in it. */
function sessionOf({ snapshot_id: snapshotId }: RescuePayload): Restored['session'] {
  return { snapshotId, adopt: () => undefined, goOn: () => undefined };
}
