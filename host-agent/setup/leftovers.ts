/** Removes what an interrupted set-up left half-built. */
import { readFile, realpath, rm } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { SetupFailure } from './failure.ts';

/** A build that lost its set-up a moment ago takes its mounts away itself. */
const UNMOUNT_LOOKS = 100;
const LOOK_MS = 200;

/** A mount below the folder could be this machine's own /dev or /proc, so nothing is removed while there is one. */
export async function removeLeftovers(
  dir: string,
  { looks = UNMOUNT_LOOKS, lookMs = LOOK_MS } = {},
): Promise<void> {
  const real = await realpath(dir).catch(() => undefined);
  if (real === undefined) return;
  for (let look = 1; ; look += 1) {
    const mountPoint = mountPointBelow(await readFile('/proc/self/mountinfo', 'utf8'), real);
    if (mountPoint === undefined) break;
    if (look >= looks) throw new SetupFailure(`${mountPoint} is still mounted; run: umount ${mountPoint}`);
    await wait(lookMs);
  }
  await rm(real, { recursive: true, force: true });
}

export function mountPointBelow(mountInfo: string, dir: string): string | undefined {
  return mountInfo
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .find((mountPoint) => mountPoint === dir || mountPoint.startsWith(`${dir}/`));
}
