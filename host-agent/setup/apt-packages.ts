/** The Debian packages set-up itself needs on this machine. */

import { run } from '../process/run-command.ts';
import { SetupFailure } from './failure.ts';
import { failureReason } from './failure-reason.ts';
import type { Outcome } from './step.ts';

export const SETUP_PACKAGES: readonly string[] = [
  'ca-certificates',
  'debian-archive-keyring',
  'erofs-utils',
  'gcc',
  'mmdebstrap',
  'musl-tools',
];

export async function installAptPackages(
  detail: (text: string) => void,
  packages: readonly string[] = SETUP_PACKAGES,
): Promise<Outcome<undefined>> {
  const missing = await missingPackages(packages);
  if (missing.length === 0) return { value: undefined, did: 'all there' };
  detail(`installing ${missing.join(' ')}`);
  // The lists may be absent or name versions the mirror has dropped: only then are they fetched.
  if (!(await install(missing, detail)).ok) {
    await updateAptLists(detail);
    const second = await install(missing, detail);
    if (!second.ok) throw new SetupFailure(`cannot install ${missing.join(' ')}: ${second.reason}`);
  }
  return { value: undefined, did: `installed ${missing.join(' ')}` };
}

export async function updateAptLists(detail: (text: string) => void): Promise<void> {
  detail('apt-get update');
  const update = await run('apt-get', ['-q', 'update'], { onLine: detail });
  // apt calls an update without network a success with warnings; a broken third-party source is no matter here.
  const reason = failureReason(update.tail);
  if (update.exitCode !== 0 || reason.startsWith('no network'))
    throw new SetupFailure(`apt-get update failed: ${reason}`);
}

async function missingPackages(packages: readonly string[]): Promise<string[]> {
  const query = await run('dpkg-query', [
    '--show',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query fills these in.
    '--showformat=${Package} ${db:Status-Status}\n',
    ...packages,
  ]);
  const installed = new Set(query.stdout.split('\n').filter((line) => line.endsWith(' installed')));
  return packages.filter((name) => !installed.has(`${name} installed`));
}

async function install(
  packages: string[],
  detail: (text: string) => void,
): Promise<{ ok: true } | { ok: false; reason: string }> {
  const result = await run('apt-get', ['-q', '-y', '--no-install-recommends', 'install', ...packages], {
    environment: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    onLine: detail,
  });
  return result.exitCode === 0 ? { ok: true } : { ok: false, reason: failureReason(result.tail) };
}
