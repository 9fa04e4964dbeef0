/** The machine's own Debian: kernel, systemd, a way in, and what set-up would install. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../host-agent/process/run-command.ts';
import { SETUP_PACKAGES } from '../../host-agent/setup/apt-packages.ts';
import { SetupFailure } from '../../host-agent/setup/failure.ts';
import { failureReason } from '../../host-agent/setup/failure-reason.ts';
import type { Outcome } from '../../host-agent/setup/step.ts';

const SUITE = 'trixie';
const MIRROR = 'http://deb.debian.org/debian';
const PACKAGES = [
  'dbus',
  'initramfs-tools',
  'iproute2',
  'kmod',
  'libseccomp2',
  'linux-image-cloud-amd64',
  'openssh-server',
  'procps',
  'systemd',
  'systemd-sysv',
  'udev',
  ...SETUP_PACKAGES,
];

/** Made once for each list of packages. */
export async function machineRoot(
  cacheDir: string,
  detail: (text: string) => void,
): Promise<Outcome<string>> {
  const recipe = JSON.stringify([SUITE, MIRROR, PACKAGES]);
  const dir = join(cacheDir, 'machine', createHash('sha256').update(recipe).digest('hex'));
  if (existsSync(dir)) return { value: dir, did: `${SUITE}, cached` };
  await mkdir(join(cacheDir, 'machine'), { recursive: true });
  const newDir = await mkdtemp(join(cacheDir, 'machine', 'new-'));
  try {
    const argv = ['--variant=minbase', '--format=directory', `--include=${PACKAGES.join(',')}`];
    const made = await run('mmdebstrap', [...argv, SUITE, newDir, MIRROR], { onLine: detail });
    if (made.exitCode !== 0) throw new SetupFailure(`mmdebstrap: ${failureReason(made.tail)}`);
    await rename(newDir, dir);
  } finally {
    await rm(newDir, { recursive: true, force: true });
  }
  return { value: dir, did: SUITE };
}
