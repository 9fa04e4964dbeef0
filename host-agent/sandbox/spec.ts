/**
 * From the configuration of a sandbox to its OCI specification. Everything in it is decided here: no field, mount,
 * hook or annotation comes from a tenant.
 */

import { MAX_PROCESSES, MAX_TERMINALS } from '../../shared/program.ts';
import type { ResourceLimits } from '../../shared/session.ts';
import { MAX_TRANSFERS, MAX_WATCHES } from '../../shared/transfer.ts';
import type { CapabilitySet, OciMount, OciProcess, OciResources, OciSpec } from './oci.ts';
import { SECCOMP } from './seccomp.ts';

export const WORKSPACE = '/workspace';
/** Where the guest reads which sandbox it is, and of which generation. */
export const IDENTITY_MOUNT = '/run/sandgate';
const SUPERVISOR = '/sandgate/supervisor';

/** Users of sandboxes are at or above this, where no account of the machine lies. */
export const FIRST_SANDBOX_USER = 100_000;
export const LAST_SANDBOX_USER = 165_535;

const MIB = 1024 * 1024;
/**
 * Supervisor, kernels, file servers, proxy port, terminals, the waiting shells and the keeper that stands over each: they run as the
 * same user as the session's programs, and what a session was promised is not to be spent on them. Threads count, and
 * the JavaScript kernel alone has nine.
 */
export const OWN_PROCESSES = 24 + 2 * (MAX_TRANSFERS + MAX_WATCHES + MAX_TERMINALS) + MAX_PROCESSES;
const SHARED_MEMORY_BYTES = 64 * MIB;
const IDENTITY_BYTES = 64 * 1024;
const CPU_PERIOD_US = 100_000;
const CPU_SHARES_PER_CPU = 1024;

export interface SpecInput {
  /** Its own among the living sandboxes. */
  hostname: string;
  limits: ResourceLimits;
  /** Weight among the sandboxes of the host; without it, that of its CPUs. */
  cpuShares?: number;
  /** An EROFS image of its root file system, with the guest programs in it. */
  rootPath: string;
  /** Folders of the host that hold what the sandbox writes; empty, and its own. */
  storage: { workspace: string; tmp: string };
  /** User and group of everything in the sandbox, its own among the living sandboxes. */
  userId: number;
  /** Absolute, as a path inside the cgroup hierarchies. */
  cgroupPath: string;
}

export function buildSpec(input: SpecInput): OciSpec {
  if (input.userId < FIRST_SANDBOX_USER || input.userId > LAST_SANDBOX_USER) {
    throw new RangeError(
      `a sandbox user of at least ${FIRST_SANDBOX_USER} was expected, not ${input.userId}`,
    );
  }
  return {
    ociVersion: '1.0.2',
    hostname: input.hostname,
    process: buildProcess(input),
    // A name that the specification asks for: there is no such folder, the annotations say what the root is.
    root: { path: 'root', readonly: true },
    mounts: buildMounts(input),
    linux: {
      cgroupsPath: input.cgroupPath,
      resources: buildResources(input.limits, input.cpuShares),
      // The network namespace is new and stays empty. A user namespace runsc makes by itself, and maps nobody but one user into it.
      namespaces: [
        { type: 'pid' },
        { type: 'network' },
        { type: 'ipc' },
        { type: 'uts' },
        { type: 'mount' },
        { type: 'cgroup' },
      ],
      devices: [],
      seccomp: SECCOMP,
    },
    annotations: { ...rootAnnotations(input.rootPath), ...storageAnnotations(input) },
  };
}

/** What every program of the sandbox finds in its environment unless the session says otherwise. */
export const BASE_ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: WORKSPACE,
  LANG: 'C.UTF-8',
  // The user has no entry in passwd: programs that ask for a name find it here.
  USER: 'sandbox',
  LOGNAME: 'sandbox',
};

function buildProcess(input: SpecInput): OciProcess {
  const { limits, userId } = input;
  return {
    terminal: false,
    user: { uid: userId, gid: userId, umask: 0o022 },
    args: [SUPERVISOR],
    env: Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`),
    cwd: WORKSPACE,
    capabilities: noCapabilities(),
    rlimits: [
      rlimit('RLIMIT_NOFILE', 1024),
      // Over it fork fails with EAGAIN, which a program survives; the pids limit outside kills the whole sandbox.
      rlimit('RLIMIT_NPROC', limits.processes + OWN_PROCESSES),
      // Above every file system's size, so a full one says ENOSPC first; it is there for sparse files.
      rlimit('RLIMIT_FSIZE', 2 * Math.max(limits.workspace_bytes, limits.tmp_bytes, SHARED_MEMORY_BYTES)),
      rlimit('RLIMIT_CORE', 0),
      rlimit('RLIMIT_MEMLOCK', 64 * 1024),
      rlimit('RLIMIT_MSGQUEUE', 0),
      rlimit('RLIMIT_SIGPENDING', 1024),
    ],
    noNewPrivileges: true,
  };
}

function rlimit(type: OciProcess['rlimits'][number]['type'], value: number): OciProcess['rlimits'][number] {
  return { type, soft: value, hard: value };
}

function noCapabilities(): Record<CapabilitySet, string[]> {
  return { bounding: [], effective: [], inheritable: [], permitted: [], ambient: [] };
}

function buildMounts({ storage, userId }: SpecInput): OciMount[] {
  return [
    { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'nodev', 'noexec'] },
    bind('/tmp', storage.tmp),
    bind(WORKSPACE, storage.workspace),
    memory('/dev/shm', ['mode=1777', `size=${SHARED_MEMORY_BYTES}`]),
    // The supervisor writes it, and it is a user of the sandbox as all others.
    memory(IDENTITY_MOUNT, ['mode=0755', `uid=${userId}`, `gid=${userId}`, `size=${IDENTITY_BYTES}`]),
  ];
}

function bind(destination: string, source: string): OciMount {
  return { destination, type: 'bind', source, options: ['bind', 'rw', 'nosuid', 'nodev'] };
}

function memory(destination: string, options: string[]): OciMount {
  return {
    destination,
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'nodev', 'noexec', ...options],
  };
}

/** With a root that no process of the host serves, and nothing else that one would have to, there is no gofer. */
function rootAnnotations(rootPath: string): Record<string, string> {
  return { 'dev.gvisor.spec.rootfs.source': rootPath, 'dev.gvisor.spec.rootfs.type': 'erofs' };
}

/**
 * Makes gVisor mount a tmpfs of its own in place of each writable bind mount and keep that tmpfs in one file in the
 * mount's source. So the guest never has files of the host, `size` bounds it, and what it writes is page cache that
 * the kernel can write back: a full workspace says ENOSPC and does not count as memory that is used up.
 */
function storageAnnotations({ limits, storage, userId }: SpecInput): Record<string, string> {
  return {
    ...mountHint('tmp', storage.tmp, ['mode=1777', `size=${limits.tmp_bytes}`]),
    ...mountHint('workspace', storage.workspace, [
      'mode=0755',
      `uid=${userId}`,
      `gid=${userId}`,
      `size=${limits.workspace_bytes}`,
    ]),
  };
}

function mountHint(name: string, source: string, options: string[]): Record<string, string> {
  const prefix = `dev.gvisor.spec.mount.${name}`;
  return {
    [`${prefix}.source`]: source,
    [`${prefix}.type`]: 'tmpfs',
    [`${prefix}.share`]: 'container',
    [`${prefix}.options`]: ['rw', 'nosuid', 'nodev', ...options].join(),
  };
}

export function buildResources(
  limits: ResourceLimits,
  cpuShares = Math.max(2, Math.round(limits.cpus * CPU_SHARES_PER_CPU)),
): OciResources {
  return {
    devices: [{ allow: false, access: 'rwm' }],
    // `swap` is memory and swap together: equal to `limit` it leaves no swap.
    memory: { limit: limits.memory_bytes, swap: limits.memory_bytes, disableOOMKiller: false },
    cpu: {
      shares: cpuShares,
      quota: Math.round(limits.cpus * CPU_PERIOD_US),
      period: CPU_PERIOD_US,
    },
    // Counts threads of the sentry and stubs of guest processes too. Reaching it kills the sandbox.
    pids: { limit: Math.max(1024, 16 * (limits.processes + OWN_PROCESSES) + 256) },
  };
}
