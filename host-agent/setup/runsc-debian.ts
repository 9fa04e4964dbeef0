/** Fetches the pinned runsc from Debian without installing it into the system. */
import { chmod, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { run } from '../process/run-command.ts';
import { SetupFailure } from './failure.ts';
import { failureReason } from './failure-reason.ts';
import { requireDigest } from './file-digest.ts';
import { privateApt } from './private-apt.ts';
import { DEBIAN_RUNSC, type DebianPin } from './runsc-pin.ts';

export type DebianDownload = { mainUri: string; architecture: string; workDir: string; target: string };

/** Debian's signature is checked by apt, our own digest here: both must hold. */
export async function fetchDebianRunsc(
  download: DebianDownload,
  detail: (text: string) => void,
): Promise<void> {
  const pin = debianPin(download.architecture);
  const apt = await privateApt(join(download.workDir, 'apt'), download.mainUri, DEBIAN_RUNSC.suite);
  const options = [...apt.options, '-o', `APT::Architecture=${download.architecture}`];
  detail(`reading the index of ${DEBIAN_RUNSC.suite}`);
  const update = await run('apt-get', [...options, '-q', 'update', '--error-on=any']);
  if (update.exitCode !== 0) {
    throw new SetupFailure(`cannot read Debian's ${DEBIAN_RUNSC.suite} index: ${failureReason(update.tail)}`);
  }
  requireOffered((await run('apt-cache', [...options, 'madison', DEBIAN_RUNSC.package])).stdout);
  detail('downloading');
  const name = `${DEBIAN_RUNSC.package}=${DEBIAN_RUNSC.version}`;
  const fetched = await run('apt-get', [...options, '-q', 'download', name], { cwd: download.workDir });
  if (fetched.exitCode !== 0)
    throw new SetupFailure(`cannot download ${name}: ${failureReason(fetched.tail)}`);
  const deb = (await readdir(download.workDir)).find((file) => file.endsWith('.deb'));
  if (deb === undefined) throw new SetupFailure(`apt-get download ${name} left no package file`);
  await unpackDebianRunsc(join(download.workDir, deb), pin, download.target);
}

export function debianPin(architecture: string): DebianPin {
  const pin = DEBIAN_RUNSC.builds.get(architecture);
  if (pin === undefined) {
    const known = [...DEBIAN_RUNSC.builds.keys()].join(', ');
    throw new SetupFailure(`no runsc is pinned for architecture ${architecture}; pinned are ${known}`);
  }
  return pin;
}

/** Checks the package file before dpkg-deb parses it and the program before anything can run it. */
export async function unpackDebianRunsc(deb: string, pin: DebianPin, target: string): Promise<void> {
  await requireDigest('the runsc package', deb, { algorithm: 'sha256', hex: pin.debSha256 });
  const unpacked = `${deb}.unpacked`;
  const extract = await run('dpkg-deb', ['--extract', deb, unpacked]);
  if (extract.exitCode !== 0) throw new SetupFailure(`cannot unpack ${deb}: ${failureReason(extract.tail)}`);
  const binary = join(unpacked, 'usr/bin/runsc');
  await requireDigest('the runsc program', binary, { algorithm: 'sha256', hex: pin.binarySha256 });
  await chmod(binary, 0o755);
  await mkdir(dirname(target), { recursive: true });
  await rename(binary, target);
  await rm(unpacked, { recursive: true, force: true });
}

/** Takes what `apt-cache madison` prints: package, version and source between bars. */
export function requireOffered(madison: string): void {
  const versions = madison
    .split('\n')
    .map((line) => line.split('|')[1]?.trim())
    .filter((version) => version !== undefined);
  if (versions.includes(DEBIAN_RUNSC.version)) return;
  throw new SetupFailure(
    `Debian's mirror no longer offers the pinned runsc ${DEBIAN_RUNSC.version} (it offers ` +
      `${versions.join(', ') || 'none'}); update the pin in host-agent/setup/runsc-pin.ts, or set SANDGATE_RUNSC_SOURCE=gvisor`,
  );
}
