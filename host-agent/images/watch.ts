/** Notices that images came into the store or left it. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';

const LOOK_INTERVAL_MS = 2_000;

/**
 * Reads a few folders' names only, as long as nothing changes. Calls at once too: who listed the store before may have
 * missed something since. Gives what ends the watch.
 */
export function watchImages(
  storeDir: string,
  onChange: () => Promise<void>,
  intervalMs = LOOK_INTERVAL_MS,
): () => void {
  let seen: string | undefined;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const look = async (): Promise<void> => {
    const now = await foldersOf(storeDir).catch(() => seen);
    if (now !== seen && !stopped) await onChange().catch(() => undefined);
    seen = now;
    if (!stopped) timer = setTimeout(() => void look(), intervalMs).unref();
  };
  void look();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

async function foldersOf(storeDir: string): Promise<string> {
  const names = (await readdir(storeDir)).toSorted();
  const images = await Promise.all(names.map((name) => readdir(join(storeDir, name)).catch(() => [])));
  return JSON.stringify(names.map((name, at) => [name, images[at]?.toSorted()]));
}
