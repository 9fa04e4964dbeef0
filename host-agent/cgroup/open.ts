/** Chooses the version of cgroups that this machine has mounted. */
import { readFile } from 'node:fs/promises';
import type { Cgroups } from './cgroups.ts';
import { parseCgroupMounts } from './mounts.ts';
import { CgroupsV1 } from './v1.ts';
import { CgroupsV2 } from './v2.ts';

/** Throws when the controllers that bound a sandbox are missing: without them no sandbox may start. */
export async function openCgroups(parent: string): Promise<Cgroups> {
  const mounts = parseCgroupMounts(await readFile('/proc/self/mountinfo', 'utf8'));
  // Hybrid machines mount version 2 without controllers beside version 1.
  if (mounts.v1.has('memory')) return new CgroupsV1(mounts, parent);
  if (mounts.v2 !== undefined) return new CgroupsV2(mounts.v2, parent);
  throw new Error('the machine has no cgroup file system mounted');
}
