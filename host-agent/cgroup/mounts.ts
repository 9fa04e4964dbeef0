/** Where the machine has its cgroup hierarchies. */

export interface CgroupMounts {
  /** Version 1: the mount point of each controller; one mount may hold several. */
  v1: Map<string, string>;
  /** Every version 1 mount point, those of named hierarchies without a controller too. */
  v1All: string[];
  /** The version 2 hierarchy, mounted beside version 1 on hybrid machines. */
  v2: string | undefined;
}

export const V1_CONTROLLERS = ['memory', 'cpu', 'cpuacct', 'pids', 'freezer'] as const;
/** `cpuset` bounds nothing of ours: runsc reads there how many CPUs there are, and starts nothing where it cannot. */
export const V2_CONTROLLERS = ['cpu', 'cpuset', 'memory', 'pids'] as const;

/** Reads the text of /proc/self/mountinfo. Where a hierarchy is mounted twice the first mount counts. */
export function parseCgroupMounts(mountinfo: string): CgroupMounts {
  const mounts: CgroupMounts = { v1: new Map(), v1All: [], v2: undefined };
  for (const line of mountinfo.split('\n')) {
    const [before, after] = line.split(' - ', 2);
    const mountPoint = before?.split(' ')[4];
    const [type, , superOptions] = after?.split(' ') ?? [];
    if (mountPoint === undefined || type === undefined) continue;
    const path = unescapeOctal(mountPoint);
    if (type === 'cgroup2') mounts.v2 ??= path;
    if (type !== 'cgroup') continue;
    mounts.v1All.push(path);
    for (const option of superOptions?.split(',') ?? []) {
      if (/^[a-z_]+$/.test(option) && !mounts.v1.has(option)) mounts.v1.set(option, path);
    }
  }
  return mounts;
}

/** The kernel writes spaces and the like of a path as three octal digits. */
function unescapeOctal(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
