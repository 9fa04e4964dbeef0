/** Control groups of the sandboxes: made before runsc starts, so limits and counters outlive the sandbox. */

export interface CgroupLimits {
  memoryBytes: number;
  cpuQuotaUs: number;
  cpuPeriodUs: number;
  /** Weight among the sandboxes of the machine, 1024 a CPU. */
  cpuShares: number;
  pids: number;
  /** Undefined: whatever the disk gives. */
  io?: IoLimits | undefined;
}

/** Of what goes to and comes from one disk; what the page cache has costs nothing. */
export interface IoLimits {
  /** `MAJOR:MINOR`. */
  disk: string;
  readBytesPerS: number | undefined;
  writeBytesPerS: number | undefined;
}

export interface CgroupUsage {
  /** Processes that the kernel killed for memory, since the group was made. */
  oomKills: number;
  cpuMs: number;
  peakMemoryBytes: number;
}

/** How every group below the parent is thawed: `<parentDir>/<group>/<file>` takes `value`. */
export interface ThawFiles {
  parentDir: string;
  file: string;
  value: string;
}

/** One directory per sandbox, `<parent>/<name>`, in whichever version of cgroups the machine has mounted. */
export interface Cgroups {
  readonly version: 1 | 2;
  readonly thawFiles: ThawFiles;
  /** The path as an OCI specification wants it. */
  pathOf(name: string): string;
  create(name: string, limits: CgroupLimits): Promise<void>;
  /** Undefined when there is no such group. Synchronous: these files answer from memory, and a call waits for it. */
  usage(name: string): CgroupUsage | undefined;
  /** Lets the peak of memory start anew where the kernel can do that. */
  resetPeak(name: string): void;
  /** Bounds the group anew, while it lives. Memory that is in use above a lower bound is not taken away. */
  setLimits(name: string, limits: CgroupLimits): void;
  /** Stops every process of the group until `thaw`; nothing happens where there is no such group. */
  freeze(name: string): void;
  thaw(name: string): void;
  /** Whether every process of the group stands still. */
  isFrozen(name: string): boolean;
  /** SIGKILL to every process in the group, also where it is frozen. */
  kill(name: string): void;
  /** Kills what is left inside, then removes the group from every hierarchy. True when nothing is left of it. */
  remove(name: string): Promise<boolean>;
  /** Names of all groups under the parent. */
  list(): Promise<string[]>;
  /** Removes the parent if it is empty. */
  removeParent(): Promise<void>;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
const PARENT = /^(\/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){1,4}$/;

export function requireName(name: string): string {
  if (!NAME.test(name))
    throw new TypeError(`a cgroup name of letters, digits, _ and - was expected: ${name}`);
  return name;
}

export function requireParent(parent: string): string {
  if (!PARENT.test(parent)) throw new TypeError(`an absolute cgroup path was expected: ${parent}`);
  return parent;
}
