/** The part of the OCI runtime specification that our bundles use, under the specification's own names. */
export interface OciSpec {
  ociVersion: string;
  hostname: string;
  process: OciProcess;
  root: { path: string; readonly: boolean };
  mounts: OciMount[];
  linux: OciLinux;
  annotations: Record<string, string>;
}

export interface OciProcess {
  terminal: boolean;
  user: { uid: number; gid: number; umask: number };
  args: string[];
  env: string[];
  cwd: string;
  capabilities: Record<CapabilitySet, string[]>;
  rlimits: { type: RlimitType; soft: number; hard: number }[];
  noNewPrivileges: boolean;
}

export type CapabilitySet = 'bounding' | 'effective' | 'inheritable' | 'permitted' | 'ambient';

export type RlimitType =
  | 'RLIMIT_CORE'
  | 'RLIMIT_FSIZE'
  | 'RLIMIT_MEMLOCK'
  | 'RLIMIT_MSGQUEUE'
  | 'RLIMIT_NOFILE'
  | 'RLIMIT_NPROC'
  | 'RLIMIT_SIGPENDING';

export interface OciMount {
  destination: string;
  type: 'proc' | 'tmpfs' | 'bind';
  source: string;
  options: string[];
}

export interface OciLinux {
  cgroupsPath: string;
  resources: OciResources;
  namespaces: { type: NamespaceType }[];
  devices: never[];
  seccomp?: OciSeccomp;
}

export type NamespaceType = 'pid' | 'network' | 'ipc' | 'uts' | 'mount' | 'cgroup';

export interface OciSeccomp {
  defaultAction: 'SCMP_ACT_ALLOW';
  syscalls: {
    names: string[];
    action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO' | 'SCMP_ACT_TRACE';
    args?: { index: number; value: number; valueTwo: number; op: 'SCMP_CMP_MASKED_EQ' }[];
  }[];
}

export interface OciResources {
  devices: { allow: boolean; access: string }[];
  memory: { limit: number; swap: number; disableOOMKiller: boolean };
  cpu: { shares: number; quota: number; period: number };
  pids: { limit: number };
}
