/** Takes images out of the store. They are put aside first, so that one that is used after all can be put back. */
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { imageDir } from './image-file.ts';
import type { Image } from './store.ts';

export interface RemovalPlaces {
  imagesDir: string;
  /** On the same file system. What an interrupted removal leaves there, the next set-up removes. */
  workDir: string;
}

/** False where a sandbox uses it: then it is where it was. The caller holds the lock of the store. */
export async function removeImage(
  { imagesDir, workDir }: RemovalPlaces,
  { name, digest }: Pick<Image, 'name' | 'digest'>,
  isInUse: (digest: string) => Promise<boolean>,
): Promise<boolean> {
  const dir = imageDir(imagesDir, name, digest);
  await mkdir(workDir, { recursive: true });
  const aside = await mkdtemp(join(workDir, 'removed-'));
  const moved = join(aside, 'image');
  // From here on no sandbox can be made on it; one that was made just before is seen.
  await rename(dir, moved);
  // Also where nobody can say.
  let mustStay = true;
  try {
    mustStay = await isInUse(digest);
  } finally {
    if (mustStay) await rename(moved, dir);
    await rm(aside, { recursive: true, force: true });
  }
  return !mustStay;
}

const DAY_MS = 86_400_000;

export interface PruneRule {
  unusedDays: number;
  /** The newest image of each of these stays: every host offers it. */
  keptNames: readonly string[];
  nowMs: number;
}

/** Those that no session started on for so long. `images` is in the order of the store, the newest first. */
export function imagesToPrune(
  images: readonly Image[],
  { unusedDays, keptNames, nowMs }: PruneRule,
): Image[] {
  const kept = new Set(keptNames.map((name) => images.find((image) => image.name === name)));
  return images.filter((image) => {
    const unusedMs = nowMs - Date.parse(image.lastUsedAt);
    return !kept.has(image) && unusedMs >= unusedDays * DAY_MS;
  });
}
