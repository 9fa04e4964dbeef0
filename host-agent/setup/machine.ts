/** What the machine must be before anything is done to it. */
import { readFile, statfs } from 'node:fs/promises';
import { SetupFailure } from './failure.ts';

const GIB = 1024 ** 3;
/** An image while it is built, with its packages, and room for the first sessions. */
const NEEDED_BYTES = 2 * GIB;
const DEBIAN_VERSIONS = ['12', '13'];

export type Machine = { architecture: 'amd64' | 'arm64'; codename: string };

export async function requireMachine(cacheDir: string): Promise<Machine> {
  if (process.platform !== 'linux') throw new SetupFailure('needs Linux (Debian 12 or 13)');
  const codename = debianCodename(await readFile('/etc/os-release', 'utf8').catch(() => ''));
  const free = await statfs(cacheDir);
  requireSpace(free.bavail * free.bsize, cacheDir);
  return { architecture: debianArchitecture(process.arch), codename };
}

export function requireRoot(): void {
  if (process.getuid?.() === 0) return;
  throw new SetupFailure('must run as root: gVisor needs it for mounts, namespaces and cgroups');
}

export function debianCodename(osRelease: string): string {
  const field = (name: string): string | undefined =>
    new RegExp(`^${name}="?([^"\n]*)"?$`, 'm').exec(osRelease)?.[1];
  const codename = field('VERSION_CODENAME');
  if (
    field('ID') !== 'debian' ||
    !DEBIAN_VERSIONS.includes(field('VERSION_ID') ?? '') ||
    codename === undefined
  ) {
    const found = field('PRETTY_NAME') ?? 'an unknown system';
    throw new SetupFailure(`needs Debian 12 or 13; this machine runs ${found}`);
  }
  return codename;
}

export function requireSpace(freeBytes: number, dir: string): void {
  if (freeBytes >= NEEDED_BYTES) return;
  const gib = (bytes: number): string => (bytes / GIB).toFixed(1);
  throw new SetupFailure(
    `not enough disk space in ${dir}: ${gib(freeBytes)} GiB free, ${gib(NEEDED_BYTES)} GiB needed ` +
      '(SANDGATE_CACHE_DIR chooses another place)',
  );
}

function debianArchitecture(nodeArchitecture: string): Machine['architecture'] {
  if (nodeArchitecture === 'x64') return 'amd64';
  if (nodeArchitecture === 'arm64') return 'arm64';
  throw new SetupFailure(`needs amd64 or arm64; this machine is ${nodeArchitecture}`);
}
