/** The global flags, the same for every subcommand: `start` or `list` with other flags than `run` misbehave. */

export const PLATFORM = 'systrap';

/**
 * Descriptors of the host that one sentry may hold. A sandbox at rest has some thirty: its files lie in memory or in one root
 * file, so what the guest opens takes none.
 */
const MAX_HOST_DESCRIPTORS = 1_024;

/** Closed on purpose: what is not built here cannot be passed. */
export function globalFlags(rootDir: string): string[] {
  return [
    `--root=${rootDir}`,
    `--platform=${PLATFORM}`,
    '--network=none',
    '--host-uds=none',
    '--host-fifo=none',
    '--net-raw=false',
    '--overlay2=none',
    // The sentry runs as nobody without capabilities; the files that it is given are open already.
    '--directfs=false',
    '--oci-seccomp',
    '--watchdog-action=panic',
    `--fdlimit=${MAX_HOST_DESCRIPTORS}`,
    '--allow-flag-override=false',
    '--cpu-num-from-quota',
  ];
}

/** Where runsc and the sentry write when something is wrong. Of one sandbox, hence only with `run`. */
export function logFlags(bundleDir: string): string[] {
  return [`--log=${bundleDir}/runsc.log`, '--log-format=json', `--panic-log=${bundleDir}/panic.log`];
}

const FORBIDDEN =
  /^--?(rootless|ignore-cgroups|profile.*|debug.*|strace.*|nvproxy.*|tpuproxy|rdmaproxy.*|fuse|cgroupfs|reproduce-nat|testonly-.*|experimental-.*)(=|$)/i;
const FORBIDDEN_VALUES = [/^--?network=(?!none$)/, /^--?host-uds=(?!none$)/, /^--?host-fifo=(?!none$)/];

/** The last look at an argument vector before it is run. */
export function requireAllowed(argv: readonly string[]): void {
  const forbidden = argv.find(
    (argument) => FORBIDDEN.test(argument) || FORBIDDEN_VALUES.some((pattern) => pattern.test(argument)),
  );
  if (forbidden !== undefined) throw new Error(`runsc must never be run with ${forbidden}`);
}
