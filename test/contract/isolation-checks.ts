/** What has to be true inside every sandbox, as questions that a program in it can answer. */

export interface IsolationCheck {
  title: string;
  command: string;
  holds: (printed: string) => boolean;
}

const OWN_MOUNTS = [
  '/',
  '/dev',
  '/dev/pts',
  '/dev/shm',
  '/proc',
  '/run/sandgate',
  '/sys',
  '/tmp',
  '/workspace',
];
const OWN_VARIABLES = ['HOME', 'LANG', 'LOGNAME', 'PATH', 'PWD', 'SHLVL', 'USER', '_', 'GREETING', 'OLDPWD'];
/** Twice the largest file system of a sandbox by default. */
const LARGEST_FILE_KIB = 2 * 1024 ** 2;
const EVERYWHERE_ZERO = /^Cap(Inh|Prm|Eff|Bnd|Amb):\s*0+$/;

const lines = (printed: string): string[] => printed.trim().split('\n').filter(Boolean);

export const ISOLATION_CHECKS: readonly IsolationCheck[] = [
  {
    title: 'the kernel is that of gVisor',
    command: 'cat /proc/version',
    holds: (printed) => printed.startsWith('Linux version 4.4.0 '),
  },
  {
    title: 'programs are of a user and group that the host has not',
    command: 'id -u; id -g; id -G',
    holds: (printed) => lines(printed).length === 3 && lines(printed).every((id) => Number(id) >= 100_000),
  },
  {
    title: 'no program has a capability',
    command: "grep '^Cap' /proc/self/status",
    holds: (printed) =>
      lines(printed).length >= 4 && lines(printed).every((line) => EVERYWHERE_ZERO.test(line)),
  },
  {
    title: 'every limit of a process is set',
    command: 'for limit in n c l i u f q; do ulimit -H -$limit; done',
    holds: (printed) => {
      // `unlimited` is no number, and no comparison with that holds.
      const [files, core, locked, pending, processes, fileKib, queue] = lines(printed).map(Number);
      const isFixed = files === 1024 && core === 0 && locked === 64 && pending === 1024 && queue === 0;
      return isFixed && (processes ?? Infinity) < 4096 && (fileKib ?? Infinity) <= LARGEST_FILE_KIB;
    },
  },
  {
    title: 'nothing is run from shared memory or /proc',
    command:
      "grep -E '^[^ ]+ (/dev/shm|/proc) ' /proc/mounts; cp /bin/true /dev/shm/run && /dev/shm/run && echo ran",
    holds: (printed) =>
      lines(printed).length === 2 && lines(printed).every((line) => /[ ,]noexec[ ,]/.test(line)),
  },
  {
    title: 'the root file system is read-only',
    command: "grep ' / ' /proc/mounts",
    holds: (printed) => lines(printed).length > 0 && lines(printed).every((line) => / ro[, ]/.test(line)),
  },
  {
    title: 'nothing is mounted that is not its own',
    command: "cut -d ' ' -f 2 /proc/mounts",
    holds: (printed) => lines(printed).every((path) => OWN_MOUNTS.includes(path)),
  },
  {
    // gVisor tells of the limit of the control group, and of all that the machine has where there is none.
    title: 'memory is bounded far below that of the machine',
    command: "sed -n 's/^MemTotal: *\\([0-9]*\\) kB$/\\1/p' /proc/meminfo",
    holds: (printed) => {
      const kib = Number(lines(printed)[0] ?? Number.NaN);
      return kib > 0 && kib <= 1024 ** 2;
    },
  },
  {
    title: 'what can be written is bounded, and no folder of the host',
    command: 'for f in /workspace /tmp; do df -B1 --output=size $f | tail -1; grep " $f " /proc/mounts; done',
    holds: (printed) => {
      const sizes = lines(printed)
        .map(Number)
        .filter((size) => !Number.isNaN(size));
      const mounts = lines(printed).filter((line) => line.includes('/'));
      const limited = sizes.length === 2 && sizes.every((size) => size > 0 && size <= 1024 ** 3);
      return limited && mounts.length === 2 && mounts.every((line) => / tmpfs .*size=/.test(line));
    },
  },
  {
    title: 'the system calls of an administrator are refused before the kernel looks at them',
    // Keys: of these the kernel itself would say that it has none.
    command: `grep '^Seccomp:' /proc/self/status; python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
keyctl = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
libc.syscall(keyctl, 0, 0)
print(os.strerror(ctypes.get_errno()))'`,
    holds: (printed) => /^Seccomp:\s*2\nOperation not permitted$/.test(printed.trim()),
  },
  {
    title: 'nobody becomes root in a namespace of their own',
    command: `unshare -U true 2>/dev/null && echo unshared
python3 -c '
import ctypes, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
new_user = 0x10000000
clone, clone3 = {"x86_64": 56, "aarch64": 220}[os.uname().machine], 435
for beside in (0x02000000, 0x08000000, 0x00020000, 0x40000000, 0x20000000, 0x04000000):
    if libc.unshare(new_user | beside) == 0: print("unshared with", hex(beside))
for how, call in (("clone", lambda: libc.syscall(clone, new_user | signal.SIGCHLD, 0, 0, 0, 0)),
                  ("clone3", lambda: libc.syscall(clone3, struct.pack("8Q", new_user, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64))):
    child = call()
    if child == 0: os._exit(0)
    if child > 0: print("made by", how)'`,
    holds: (printed) => printed.trim() === '',
  },
  {
    title: 'there is no interface but loopback',
    command: "tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '",
    holds: (printed) => lines(printed).every((name) => name === 'lo'),
  },
  {
    title: 'no variable of the host is to be seen',
    command: "tr '\\0' '\\n' < /proc/self/environ | cut -d = -f 1",
    holds: (printed) =>
      lines(printed).length > 0 && lines(printed).every((name) => OWN_VARIABLES.includes(name)),
  },
  {
    title: 'no process of the host is to be seen',
    command: 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n"',
    holds: (printed) =>
      printed.includes('/sandgate/supervisor') && !/runsc|systemd|sshd|vitest|workerd/.test(printed),
  },
  {
    title: 'no device can be made, no disk opened, and no file system mounted',
    command:
      '(mkdir /dev/shm/made; cd /dev/shm/made; mknod pipe p && mknod disk b 8 0 2>/dev/null; mknod null c 1 3 2>/dev/null; ls; head -c 1 disk 2>/dev/null | wc -c); mount -t tmpfs x /mnt 2>/dev/null && echo mounted; true',
    holds: (printed) => printed.trim() === 'pipe\n0',
  },
];
