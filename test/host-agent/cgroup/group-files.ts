/** What the kernel's own files say of a group, alike for both versions. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cgroups } from '../../../host-agent/cgroup/cgroups.ts';
import { parseCgroupMounts } from '../../../host-agent/cgroup/mounts.ts';

export interface GroupFiles {
  /** Where a process that joins the group writes itself. */
  members(name: string): string[];
  limits(name: string): { memoryBytes: number; cpuQuotaUs: number; pids: number };
  /** Beyond the memory; undefined on a kernel that cannot say. */
  swapBytes(name: string): number | undefined;
  processes(name: string): number;
  timesThrottled(name: string): number;
  boundsDisks: boolean;
  diskLimits(name: string): string;
}

export function groupFiles(cgroups: Cgroups): GroupFiles {
  const mounts = parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8'));
  const dirOf = (controller: string, name: string): string =>
    join((cgroups.version === 1 ? mounts.v1.get(controller) : mounts.v2) ?? '', cgroups.pathOf(name));
  const read = (controller: string, name: string, file: string): string =>
    readFileSync(join(dirOf(controller, name), file), 'utf8').trim();
  const common = {
    processes: (name: string) => Number(read('pids', name, 'pids.current')),
    timesThrottled: (name: string) =>
      Number(/^nr_throttled (\d+)$/m.exec(read('cpu', name, 'cpu.stat'))?.[1]),
  };
  if (cgroups.version === 1) {
    const controllers = ['memory', 'cpu', 'cpuacct', 'pids', 'freezer'];
    const boundsDisks = mounts.v1.has('blkio');
    return {
      ...common,
      members: (name) =>
        [...controllers, 'blkio']
          .map((controller) => join(dirOf(controller, name), 'cgroup.procs'))
          .filter((file) => isThere(file)),
      limits: (name) => ({
        memoryBytes: Number(read('memory', name, 'memory.limit_in_bytes')),
        cpuQuotaUs: Number(read('cpu', name, 'cpu.cfs_quota_us')),
        pids: Number(read('pids', name, 'pids.max')),
      }),
      swapBytes: (name) => {
        if (!isThere(join(dirOf('memory', name), 'memory.memsw.limit_in_bytes'))) return undefined;
        const joint = Number(read('memory', name, 'memory.memsw.limit_in_bytes'));
        return joint - Number(read('memory', name, 'memory.limit_in_bytes'));
      },
      boundsDisks,
      diskLimits: (name) => read('blkio', name, 'blkio.throttle.write_bps_device'),
    };
  }
  return {
    ...common,
    members: (name) => [join(dirOf('', name), 'cgroup.procs')],
    limits: (name) => ({
      memoryBytes: Number(read('', name, 'memory.max')),
      cpuQuotaUs: Number(read('', name, 'cpu.max').split(' ')[0]),
      pids: Number(read('', name, 'pids.max')),
    }),
    swapBytes: (name) =>
      isThere(join(dirOf('', name), 'memory.swap.max'))
        ? Number(read('', name, 'memory.swap.max'))
        : undefined,
    boundsDisks: readFileSync(join(mounts.v2 ?? '', 'cgroup.controllers'), 'utf8')
      .split(/\s+/)
      .includes('io'),
    diskLimits: (name) => read('', name, 'io.max'),
  };
}

function isThere(path: string): boolean {
  try {
    readFileSync(path);
    return true;
  } catch {
    return false;
  }
}
