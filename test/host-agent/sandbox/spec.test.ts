import { describe, expect, it } from 'vitest';
import type { OciSeccomp, OciSpec } from '../../../host-agent/sandbox/oci.ts';
import { buildSpec, OWN_PROCESSES, type SpecInput } from '../../../host-agent/sandbox/spec.ts';

const MIB = 1024 * 1024;
const INPUT: SpecInput = {
  hostname: 'sbx-0011223344556677',
  limits: {
    cpus: 1.5,
    memory_bytes: 512 * MIB,
    processes: 256,
    workspace_bytes: 128 * MIB,
    tmp_bytes: 64 * MIB,
  },
  rootPath: '/images/python/roots/abc.erofs',
  storage: { workspace: '/bundle/storage/workspace', tmp: '/bundle/storage/tmp' },
  userId: 100_007,
  cgroupPath: '/sandgate-test/sbx-0011223344556677',
};

/** What was asked for, and what the product runs beside it. */
const ALL_PROCESSES = INPUT.limits.processes + OWN_PROCESSES;

/** A rule of the specification, and a change that breaks it: the rule must notice. */
interface Rule {
  title: string;
  holds: (spec: OciSpec) => boolean;
  breakIt: (spec: OciSpec) => void;
}

function optionsOf(spec: OciSpec, destination: string): string[] {
  return spec.mounts.find((mount) => mount.destination === destination)?.options ?? [];
}

function hint(spec: OciSpec, mount: string, key: string): string {
  return spec.annotations[`dev.gvisor.spec.mount.${mount}.${key}`] ?? '';
}

function rlimitIs(spec: OciSpec, type: string, value: number): boolean {
  const found = spec.process.rlimits.filter((rlimit) => rlimit.type === type);
  return found.length === 1 && found[0]?.soft === value && found[0].hard === value;
}

/** Flags of `clone` and types of `mknod`, by their numbers in Linux. */
const NEW_NAMESPACES = [0x02000000, 0x04000000, 0x08000000, 0x00020000, 0x10000000, 0x20000000, 0x40000000];
const SHARED_FILES = 0x400;
const [PIPE, CHARACTER_DEVICE, BLOCK_DEVICE, REGULAR_FILE, SOCKET] = [
  0o010000, 0o020000, 0o060000, 0o100000, 0o140000,
];

/** As runsc reads it: the first entry that fits, and the call is let through where none does. */
function actionOn(
  syscalls: OciSeccomp['syscalls'],
  { name, argument, index }: { name: string; argument: number; index: number },
): string {
  const fitting = syscalls.find(
    ({ names, args }) =>
      names.includes(name) &&
      (args ?? []).every((mask) => mask.index === index && (argument & mask.value) === mask.valueTwo),
  );
  return fitting?.action ?? 'SCMP_ACT_ALLOW';
}

const RULES: Rule[] = [
  {
    title: 'the root is read-only',
    holds: (spec) => spec.root.readonly,
    breakIt: (spec) => {
      spec.root.readonly = false;
    },
  },
  {
    title: 'the root is the image file, with nothing writable over it',
    holds: ({ annotations }) =>
      annotations['dev.gvisor.spec.rootfs.source'] === '/images/python/roots/abc.erofs' &&
      annotations['dev.gvisor.spec.rootfs.type'] === 'erofs' &&
      annotations['dev.gvisor.spec.rootfs.overlay'] === undefined,
    breakIt: (spec) => {
      spec.annotations['dev.gvisor.spec.rootfs.overlay'] = 'memory';
    },
  },
  {
    title: 'no capability is in any set, and all five sets are given',
    holds: ({ process }) =>
      Object.keys(process.capabilities).sort().join() ===
        'ambient,bounding,effective,inheritable,permitted' &&
      Object.values(process.capabilities).every((set) => set.length === 0),
    breakIt: (spec) => spec.process.capabilities.bounding.push('CAP_NET_RAW'),
  },
  {
    title: 'no program can gain privileges',
    holds: (spec) => spec.process.noNewPrivileges,
    breakIt: (spec) => {
      spec.process.noNewPrivileges = false;
    },
  },
  {
    title: 'user and group are the sandbox’s own and above those of the machine',
    holds: ({ process }) =>
      process.user.uid === 100_007 && process.user.gid === 100_007 && process.user.uid >= 100_000,
    breakIt: (spec) => {
      spec.process.user.gid = 0;
    },
  },
  {
    title: 'only the supervisor is started, in the workspace',
    holds: ({ process }) => process.args.join() === '/sandgate/supervisor' && process.cwd === '/workspace',
    breakIt: (spec) => spec.process.args.unshift('/bin/sh', '-c'),
  },
  {
    title: 'only the sandbox’s own storage is bound, without set-user-id programs and devices',
    holds: (spec) => {
      const binds = spec.mounts.filter((mount) => mount.type === 'bind');
      return (
        binds.map(({ source }) => source).join() === '/bundle/storage/tmp,/bundle/storage/workspace' &&
        binds.every(({ options }) => options.includes('nosuid') && options.includes('nodev'))
      );
    },
    breakIt: (spec) => spec.mounts.push({ destination: '/x', type: 'bind', source: '/var/run', options: [] }),
  },
  {
    title: 'what the guest reads about itself is a small tmpfs of its own, and nothing is run from it',
    holds: (spec) =>
      ['noexec', 'nosuid', 'nodev', 'uid=100007', `size=${64 * 1024}`].every((option) =>
        optionsOf(spec, '/run/sandgate').includes(option),
      ),
    breakIt: (spec) => {
      for (const mount of spec.mounts) mount.options = mount.options.filter((option) => option !== 'noexec');
    },
  },
  {
    title: 'no mount needs a process of the host that serves it',
    holds: (spec) => spec.mounts.every(({ type, options }) => type !== 'bind' || !options.includes('ro')),
    breakIt: (spec) => spec.mounts.push({ destination: '/x', type: 'bind', source: '/x', options: ['ro'] }),
  },
  {
    title: 'every writable bind is replaced by a tmpfs with a size, so no file of the host can be written',
    holds: (spec) => {
      const writable = spec.mounts.filter(({ type, options }) => type === 'bind' && options.includes('rw'));
      return (
        writable.length === 2 &&
        writable.every(({ source }) =>
          ['tmp', 'workspace'].some(
            (name) =>
              hint(spec, name, 'source') === source &&
              hint(spec, name, 'type') === 'tmpfs' &&
              /(^|,)nosuid,nodev,.*size=\d+(,|$)/.test(hint(spec, name, 'options')),
          ),
        )
      );
    },
    breakIt: (spec) => {
      delete spec.annotations['dev.gvisor.spec.mount.tmp.type'];
    },
  },
  {
    title: 'workspace and /tmp have the sizes asked for, and the workspace belongs to the sandbox’s user',
    holds: (spec) =>
      hint(spec, 'workspace', 'options').endsWith(`mode=0755,uid=100007,gid=100007,size=${128 * MIB}`) &&
      hint(spec, 'tmp', 'options').endsWith(`mode=1777,size=${64 * MIB}`),
    breakIt: (spec) => {
      spec.annotations['dev.gvisor.spec.mount.tmp.options'] = 'rw';
    },
  },
  {
    title: 'shared memory is a tmpfs with a size',
    holds: (spec) =>
      ['nosuid', 'nodev', `size=${64 * MIB}`].every((option) => optionsOf(spec, '/dev/shm').includes(option)),
    breakIt: (spec) => {
      spec.mounts = spec.mounts.filter(({ destination }) => destination !== '/dev/shm');
    },
  },
  {
    title: 'memory has no swap beside it',
    holds: ({ linux }) =>
      linux.resources.memory.limit === 512 * MIB &&
      linux.resources.memory.swap === linux.resources.memory.limit &&
      !linux.resources.memory.disableOOMKiller,
    breakIt: (spec) => {
      spec.linux.resources.memory.swap = -1;
    },
  },
  {
    title: 'CPU time is bounded by a quota',
    holds: ({ linux: { resources } }) => resources.cpu.quota / resources.cpu.period === 1.5,
    breakIt: (spec) => {
      spec.linux.resources.cpu.quota = -1;
    },
  },
  {
    title: 'processes are bounded inside, and far above that outside',
    holds: (spec) =>
      rlimitIs(spec, 'RLIMIT_NPROC', ALL_PROCESSES) &&
      spec.linux.resources.pids.limit === 16 * ALL_PROCESSES + 256,
    breakIt: (spec) => {
      spec.linux.resources.pids.limit = 256;
    },
  },
  {
    title: 'open files, core dumps, locked memory, queues and signals are bounded',
    holds: (spec) =>
      rlimitIs(spec, 'RLIMIT_NOFILE', 1024) &&
      rlimitIs(spec, 'RLIMIT_CORE', 0) &&
      rlimitIs(spec, 'RLIMIT_MEMLOCK', 65_536) &&
      rlimitIs(spec, 'RLIMIT_MSGQUEUE', 0) &&
      rlimitIs(spec, 'RLIMIT_SIGPENDING', 1024),
    breakIt: (spec) => {
      spec.process.rlimits = spec.process.rlimits.filter((rlimit) => rlimit.type !== 'RLIMIT_CORE');
    },
  },
  {
    title: 'a file may be as large as its file system and no sparse file much larger',
    holds: (spec) => rlimitIs(spec, 'RLIMIT_FSIZE', 256 * MIB),
    breakIt: (spec) => {
      spec.process.rlimits = spec.process.rlimits.filter((rlimit) => rlimit.type !== 'RLIMIT_FSIZE');
    },
  },
  {
    title: 'every namespace is its own, and none is joined',
    holds: ({ linux }) =>
      linux.namespaces
        .map(({ type }) => type)
        .sort()
        .join() === 'cgroup,ipc,mount,network,pid,uts' &&
      linux.namespaces.every((namespace) => !('path' in namespace)),
    breakIt: (spec) => {
      spec.linux.namespaces = spec.linux.namespaces.filter(({ type }) => type !== 'network');
    },
  },
  {
    title: 'mounts, keys, modules and namespaces are out of reach of its system calls',
    holds: ({ linux }) => {
      const refused = (name: string, argument = 0, index = 0): boolean =>
        actionOn(linux.seccomp?.syscalls ?? [], { name, argument, index }) !== 'SCMP_ACT_ALLOW';
      const always = ['mount', 'open_tree', 'setns', 'keyctl', 'bpf', 'init_module', 'kexec_load', 'clone3'];
      return (
        always.every((name) => refused(name)) &&
        NEW_NAMESPACES.every((flag) => refused('unshare', flag | SHARED_FILES) && refused('clone', flag)) &&
        !refused('unshare', SHARED_FILES) &&
        !refused('clone', SHARED_FILES) &&
        [CHARACTER_DEVICE, BLOCK_DEVICE].every((type) => refused('mknod', type | 0o666, 1)) &&
        [0, PIPE, REGULAR_FILE, SOCKET].every((type) => !refused('mknodat', type | 0o666, 2))
      );
    },
    breakIt: (spec) => void spec.linux.seccomp?.syscalls.shift(),
  },
  {
    title: 'no device is given and all are denied',
    holds: ({ linux }) =>
      linux.devices.length === 0 &&
      JSON.stringify(linux.resources.devices) === '[{"allow":false,"access":"rwm"}]',
    breakIt: (spec) => {
      spec.linux.resources.devices = [];
    },
  },
  {
    title: 'the control group is the sandbox’s own',
    holds: ({ linux }) => linux.cgroupsPath === '/sandgate-test/sbx-0011223344556677',
    breakIt: (spec) => {
      spec.linux.cgroupsPath = '/';
    },
  },
  {
    title: 'there are no hooks, and no annotations but those of the root and the storage',
    holds: (spec) =>
      !('hooks' in spec) &&
      Object.keys(spec.annotations).every((key) =>
        /^dev\.gvisor\.spec\.(rootfs|mount\.(tmp|workspace))\./.test(key),
      ),
    breakIt: (spec) => {
      spec.annotations['dev.gvisor.flag.network'] = 'host';
    },
  },
  {
    title: 'the environment is the fixed one',
    holds: ({ process }) =>
      process.env.map((entry) => entry.split('=')[0]).join() === 'PATH,HOME,LANG,USER,LOGNAME',
    breakIt: (spec) => spec.process.env.push('AWS_SECRET_ACCESS_KEY=x'),
  },
];

describe('buildSpec', () => {
  it.each(RULES)('$title', ({ holds, breakIt }) => {
    const spec = buildSpec(INPUT);
    expect(holds(spec)).toBe(true);
    breakIt(spec);
    expect(holds(spec)).toBe(false);
  });

  it('gives small sandboxes a pids backstop that the sentry itself fits under', () => {
    const spec = buildSpec({ ...INPUT, limits: { ...INPUT.limits, processes: 8 } });
    expect(spec.linux.resources.pids.limit).toBeGreaterThanOrEqual(1024);
  });

  it.each([0, 1000, 99_999, 4_294_967_295])('refuses user %d, which is not a sandbox’s', (userId) => {
    expect(() => buildSpec({ ...INPUT, userId })).toThrow(RangeError);
  });
});
