/** Checks of the machine: kernel, control groups, what its processor leaks, and room. Pure: facts in, findings out. */
import { type CgroupMounts, V1_CONTROLLERS, V2_CONTROLLERS } from '../../cgroup/mounts.ts';
import { type Finding, fail, pass, warn } from './finding.ts';

const GIB = 1024 ** 3;
const OLDEST_KERNEL = [4, 15];
const ADVISED_KERNEL = [5, 10];
const NEEDED_DISK_BYTES = GIB;
const ADVISED_DISK_BYTES = 10 * GIB;
const ADVISED_MEMORY_BYTES = 2 * GIB;
const NEEDED_FREE_INODES = 10_000;

export function checkKernel(release: string): Finding {
  const version = /^(\d+)\.(\d+)/.exec(release);
  const parts = [Number(version?.[1] ?? 0), Number(version?.[2] ?? 0)];
  if (isBelow(parts, OLDEST_KERNEL)) {
    return fail(
      'kernel',
      release,
      `boot Linux ${ADVISED_KERNEL.join('.')} or newer: gVisor needs ${OLDEST_KERNEL.join('.')}`,
    );
  }
  if (isBelow(parts, ADVISED_KERNEL))
    return warn('kernel', release, `boot Linux ${ADVISED_KERNEL.join('.')} or newer`);
  return pass('kernel', release);
}

function isBelow([major = 0, minor = 0]: number[], [least = 0, leastMinor = 0]: number[]): boolean {
  return major < least || (major === least && minor < leastMinor);
}

/** `v2Controllers`: the words of `cgroup.controllers` at the root of version 2. */
export function checkCgroups(mounts: CgroupMounts, v2Controllers: readonly string[]): Finding {
  if (mounts.v1.has('memory')) {
    const missing = V1_CONTROLLERS.filter((name) => !mounts.v1.has(name));
    if (missing.length === 0) return pass('cgroups', 'version 1');
    return fail(
      'cgroups',
      `version 1 without ${missing.join(', ')}`,
      'mount these controllers, or boot with version 2',
    );
  }
  if (mounts.v2 === undefined) {
    return fail('cgroups', 'none are mounted', 'mount -t cgroup2 none /sys/fs/cgroup');
  }
  const missing = V2_CONTROLLERS.filter((name) => !v2Controllers.includes(name));
  if (missing.length === 0) return pass('cgroups', 'version 2');
  return fail(
    'cgroups',
    `version 2 without ${missing.join(', ')}`,
    'boot a kernel that has them, with cgroup_enable=memory and without cgroup_disable, or leave the container that hides them',
  );
}

/** `vulnerabilities`: the files of /sys/devices/system/cpu/vulnerabilities by name. */
export function checkProcessor(facts: {
  vulnerabilities: ReadonlyMap<string, string>;
  microcode: string | undefined;
}): Finding {
  const { vulnerabilities, microcode } = facts;
  const revision = microcode === undefined ? 'microcode not shown' : `microcode ${microcode}`;
  if (vulnerabilities.size === 0) {
    return warn(
      'processor',
      `${revision}, the kernel does not tell what is mitigated`,
      'boot Linux 5.10 or newer',
    );
  }
  const open = [...vulnerabilities].filter(([, text]) => text.startsWith('Vulnerable')).map(([name]) => name);
  if (open.length === 0) return pass('processor', `${revision}, all known leaks mitigated`);
  return warn(
    'processor',
    `${revision}, not mitigated: ${open.sort().join(', ')}`,
    'install intel-microcode or amd64-microcode, boot without mitigations=off; on a rented machine this is the provider’s to do',
  );
}

/** `control`: /sys/devices/system/cpu/smt/control. Two sandboxes on the threads of one core can watch each other. */
export function checkThreads(control: string | undefined, active: boolean): Finding {
  if (control === undefined) return warn('threads', 'the kernel does not tell', 'boot Linux 5.10 or newer');
  if (!active) return pass('threads', `one thread a core (${control})`);
  return warn(
    'threads',
    'two sandboxes may share a core',
    'boot with nosmt, or echo off > /sys/devices/system/cpu/smt/control',
  );
}

export function checkDisk(
  dir: string,
  free: { bytes: number; inodes: number; totalInodes: number },
): Finding {
  const found = `${gib(free.bytes)} GiB free in ${dir}`;
  const cure = `make room in ${dir}, or give it a disk of its own; sandgate-host images prune`;
  if (free.bytes < NEEDED_DISK_BYTES) return fail('disk', found, cure);
  // Some file systems count none.
  if (free.totalInodes > 0 && free.inodes < NEEDED_FREE_INODES) {
    return fail('disk', `${found}, but only ${free.inodes} inodes`, cure);
  }
  return free.bytes < ADVISED_DISK_BYTES ? warn('disk', found, cure) : pass('disk', found);
}

export function checkMemory(facts: { availableBytes: number; swapBytes: number }): Finding {
  const found = `${gib(facts.availableBytes)} GiB available`;
  if (facts.availableBytes < ADVISED_MEMORY_BYTES)
    return warn('memory', found, 'a sandbox takes 512 MiB by default: add memory or set SANDGATE_CAPACITY');
  if (facts.swapBytes > 0)
    return warn(
      'memory',
      `${found}, with swap`,
      'swapoff -a: what sandboxes hold in memory may be written to the disk',
    );
  return pass('memory', found);
}

function gib(bytes: number): string {
  return (bytes / GIB).toFixed(1);
}
