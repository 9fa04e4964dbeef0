/** A digest over a folder tree's names and metadata: cheap enough to check on every start. */
import { createHash } from 'node:crypto';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';

export type TreeManifest = { sha256: string; entries: number; sizeBytes: number };

/**
 * Covers path, type, mode, owner, size, modification time and link target. It notices a half-deleted or edited
 * tree; only root, who owns the cache, could forge it. Times after `latestTimeMs` count as that.
 */
export async function treeManifest(
  root: string,
  { latestTimeMs = Number.POSITIVE_INFINITY } = {},
): Promise<TreeManifest> {
  const hash = createHash('sha256');
  let entries = 0;
  let sizeBytes = 0;
  const walk = async (relative: string): Promise<void> => {
    const names = (await readdir(join(root, relative))).sort();
    const stats = await Promise.all(names.map((name) => lstat(join(root, relative, name))));
    for (const [index, stat] of stats.entries()) {
      const path = join(relative, names[index] ?? '');
      const target = stat.isSymbolicLink() ? await readlink(join(root, path)) : '';
      const size = stat.isFile() ? stat.size : 0;
      const time = Math.floor(Math.min(stat.mtimeMs, latestTimeMs));
      hash.update(JSON.stringify([path, stat.mode, stat.uid, stat.gid, size, time, target]));
      entries += 1;
      sizeBytes += size;
      if (stat.isDirectory()) await walk(path);
    }
  };
  await walk('');
  return { sha256: hash.digest('hex'), entries, sizeBytes };
}
