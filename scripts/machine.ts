/**
 * `npm run test:machine`: what can only be seen on a whole machine, seen on one that is made for it and thrown away. It has
 * what hosts have and a machine for development may lack: version 2 of control groups, and systemd as the first process.
 * Arguments after `--` go to vitest, instead of everything.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installAptPackages } from '../host-agent/setup/apt-packages.ts';
import { runMain } from '../host-agent/setup/failure.ts';
import { requireRoot } from '../host-agent/setup/machine.ts';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { locations } from './locations.ts';
import { HOST_PACKAGES, makeDisk } from './machine/disk.ts';
import { Emulator, isEmulated } from './machine/emulator.ts';
import { machineRoot } from './machine/root.ts';

/** Each a run of its own: vitest takes a pattern of titles for all files at once. */
const EVERYTHING: readonly (readonly string[])[] = [
  ['--project=node', 'test/host-agent/cgroup/kernel.test.ts'],
  ['--project=machine'],
  ['--project=contract', 'test/contract/runsc.test.ts', '--testNamePattern=limits'],
];

await runMain(async () => {
  requireRoot();
  const places = locations(process.env);
  const chosen = process.argv.slice(2);
  const progress = terminalProgress(process.stdout);
  const installation = await setUp(places, process.env, progress);
  await progress.step('machine packages', (detail) => installAptPackages(detail, HOST_PACKAGES));
  const root = await progress.step('machine', (detail) => machineRoot(places.cacheDir, detail));
  const workDir = await mkdtemp(join(tmpdir(), 'sandgate-whole-machine-'));
  let emulator: Emulator | undefined;
  // Whatever ends early, the disk of several gigabytes is removed.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => void emulator?.stop());
  try {
    const disk = await progress.step('machine disk', () =>
      makeDisk({ workDir, root, places, image: installation.image }),
    );
    emulator = await progress.step(isEmulated() ? 'machine, emulated' : 'machine, by KVM', async () => {
      const started = await Emulator.start(workDir, disk);
      return { value: started, did: 'systemd runs' };
    });
    let worst = 0;
    for (const tests of chosen.length > 0 ? [chosen] : EVERYTHING) {
      worst = Math.max(worst, await emulator.runInCheckout(['node', 'scripts/test.ts', ...tests]));
    }
    return worst;
  } finally {
    await emulator?.stop();
    await rm(workDir, { recursive: true, force: true });
  }
});
