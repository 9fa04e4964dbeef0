/** Removes what an interrupted set-up left half-built. */
import { readFile, realpath, rm } from 'node:fs/promises';
import { SetupFailure } from './failure.ts';

/** A mount below the folder could be this machine's own /dev or /proc, so nothing is removed while there is one. */
export async function removeLeftovers(dir: string): Promise<void> {
  const real = await realpath(dir).catch(() => undefined);
  if (real === undefined) return;
  const mountPoint = mountPointBelow(await readFile('/proc/self/mountinfo', 'utf8'), real);
  if (mountPoint !== undefined)
    throw new SetupFailure(`${mountPoint} is still mounted; run: umount ${mountPoint}`);
  await rm(real, { recursive: true, force: true });
}

export function mountPointBelow(mountInfo: string, dir: string): string | undefined {
  return mountInfo
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .find((mountPoint) => mountPoint === dir || mountPoint.startsWith(`${dir}/`));
}
