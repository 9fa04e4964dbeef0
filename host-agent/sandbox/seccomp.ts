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
const NEW_NAMESPACES =
  0x02000000 | // cgroup
  0x08000000 | // ipc
  0x00020000 | // mount
  0x40000000 | // network
  0x20000000 | // pid
  0x10000000 | // user
  0x04000000; // uts

/**
 * Set in the type of a device, of either kind, and of nothing else that `mknod` makes. gVisor heeds neither `nodev` nor the
 * lack of CAP_MKNOD; the devices that can be opened are its own, as in /dev.
 */
const DEVICE_TYPES = { mask: 0o120000, value: 0o020000 };

/** The first rule that fits a call counts. Each takes memory of every sandbox, so they are few. */
export const SECCOMP: OciSeccomp = {
  defaultAction: 'SCMP_ACT_ALLOW',
  syscalls: [
    { names: REFUSED, action: 'SCMP_ACT_ERRNO' },
    whereMasked(['clone', 'unshare'], 'SCMP_ACT_ALLOW', { index: 0, mask: NEW_NAMESPACES, value: 0 }),
    { names: ['clone', 'unshare'], action: 'SCMP_ACT_ERRNO' },
    whereMasked(['mknod'], 'SCMP_ACT_ERRNO', { index: 1, ...DEVICE_TYPES }),
    whereMasked(['mknodat'], 'SCMP_ACT_ERRNO', { index: 2, ...DEVICE_TYPES }),
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

function whereMasked(
  names: string[],
  action: OciSeccomp['syscalls'][number]['action'],
  { index, mask, value }: MaskedArgument,
): OciSeccomp['syscalls'][number] {
  const argument = { index, value: mask, valueTwo: value, op: 'SCMP_CMP_MASKED_EQ' as const };
  return { names, action, args: [argument] };
}
