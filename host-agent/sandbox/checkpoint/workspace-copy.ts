/** The workspace of a sandbox as a tar archive on the host's disk, for hosts that cannot go on from its checkpoint. */
import { open, rm } from 'node:fs/promises';
import { WORKDIR } from '../../../shared/session.ts';
import type { SnapshotWorkspace } from '../../../shared/snapshot.ts';
import type { WorkspaceWish } from '../port.ts';
import type { FileTool } from '../tools/file.ts';

/** The sandbox goes on meanwhile, but nothing new begins in its session. */
const COPY_TIMEOUT_MS = 60_000;

/** Never fails: what cannot be copied is left out, and the checkpoint is made without it. */
export async function copyWorkspace(
  files: Pick<FileTool, 'archive'>,
  { path, maxBytes }: WorkspaceWish,
): Promise<SnapshotWorkspace> {
  if (maxBytes === 0) return { left_out: 'too_large' };
  let bytes = 0;
  try {
    await using file = await open(path, 'wx', 0o600);
    const archived = await files.archive({
      path: WORKDIR,
      signal: AbortSignal.timeout(COPY_TIMEOUT_MS),
      onBytes: async (part) => {
        bytes += part.length;
        if (bytes > maxBytes) throw new Error('too large');
        for (let at = 0; at < part.length; ) at += (await file.write(part, at)).bytesWritten;
      },
    });
    if (archived.ok) return { bytes };
  } catch {
    // The disk takes no more.
  }
  await rm(path, { force: true });
  return { left_out: bytes > maxBytes ? 'too_large' : 'unreadable' };
}
