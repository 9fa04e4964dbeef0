/**
 * System calls that no program of a sandbox is let make, whatever the sentry would answer: what only an administrator of
 * a machine does, and parts of a kernel that were a way in elsewhere. Debuggers (`ptrace`) stay. It is a fence in front of
 * the sentry and holds inside every namespace that a program might get.
 */
import type { OciSeccomp } from './oci.ts';

const REFUSED = [
  // Keys of the kernel, programs in the kernel, its counters, its faults, and calls past the usual entry.
  'add_key',
  'bpf',
  'io_uring_enter',
  'io_uring_register',
  'io_uring_setup',
  'keyctl',
  'lookup_dcookie',
  'perf_event_open',
  'request_key',
  'userfaultfd',
  // The kernel itself.
  'create_module',
  'delete_module',
  'finit_module',
  'init_module',
  'kexec_file_load',
  'kexec_load',
  'reboot',
  // File systems and what lies in them.
  'acct',
  'chroot',
  'fanotify_init',
  'fsconfig',
  'fsmount',
  'fsopen',
  'fspick',
  'mount',
  'mount_setattr',
  'move_mount',
  'nfsservctl',
  'open_by_handle_at',
  'open_tree',
  'pivot_root',
  'quotactl',
  'swapoff',
  'swapon',
  'umount2',
  // The machine: its names, its clock, its ports.
  'clock_settime',
  'ioperm',
  'iopl',
  'setdomainname',
  'sethostname',
  'settimeofday',
  'vhangup',
  // Somebody else's namespace.
  'setns',
];

/** Of a new user namespace its maker is root, with every capability in it: nothing is to be had of that. */
const NEW_NAMESPACES = {
  cgroup: 0x02000000,
  ipc: 0x08000000,
  mount: 0x00020000,
  network: 0x40000000,
  pid: 0x20000000,
  user: 0x10000000,
  uts: 0x04000000,
};

const FILE_TYPE_MASK = 0o170000;
/** gVisor heeds neither `nodev` nor the lack of CAP_MKNOD; the devices that can be opened are its own, as in /dev. */
const DEVICE_TYPES = [0o020000, 0o060000];

export const SECCOMP: OciSeccomp = {
  defaultAction: 'SCMP_ACT_ALLOW',
  syscalls: [
    { names: REFUSED, action: 'SCMP_ACT_ERRNO' },
    ...Object.values(NEW_NAMESPACES).map((flag) =>
      refusedWith(['clone', 'unshare'], { index: 0, mask: flag, value: flag }),
    ),
    ...DEVICE_TYPES.flatMap((value) => [
      refusedWith(['mknod'], { index: 1, mask: FILE_TYPE_MASK, value }),
      refusedWith(['mknodat'], { index: 2, mask: FILE_TYPE_MASK, value }),
    ]),
    // Its flags lie in memory, where no filter looks. Untraced, this is ENOSYS, and then C libraries use `clone`; runsc
    // knows no other error than EPERM for ERRNO, which they take for an answer.
    { names: ['clone3'], action: 'SCMP_ACT_TRACE' },
  ],
};

interface MaskedArgument {
  index: number;
  mask: number;
  value: number;
}

function refusedWith(
  names: string[],
  { index, mask, value }: MaskedArgument,
): OciSeccomp['syscalls'][number] {
  const argument = { index, value: mask, valueTwo: value, op: 'SCMP_CMP_MASKED_EQ' as const };
  return { names, action: 'SCMP_ACT_ERRNO', args: [argument] };
}
