/** `install`: makes a bare machine a host, or brings an installed one up to this version. */

import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { requireRoot } from '../setup/machine.ts';
import { setUp } from '../setup/setup.ts';
import { terminalProgress } from '../setup/step.ts';
import { insideRoot, type Layout, SERVICE, sourceDir } from './layout.ts';
import { copyProgram } from './program-copy.ts';
import { hasSystemd, systemctl } from './service.ts';
import { writeSettings, writeWhole } from './settings.ts';
import type { Subcommand } from './subcommand.ts';
import { RESTART_KILL_SIGNAL, unitText } from './unit.ts';

export const install: Subcommand = {
  summary:
    'Installs packages, runsc, the default image, this program and its systemd unit; again: upgrades them.',
  usage: '[--root DIR]',
  options: {},
  positionals: [0, 0],
  async run({ layout }) {
    requireRoot();
    const progress = terminalProgress(process.stdout);
    const from = sourceDir();
    const { stateDir, programDir, cacheDir, hostDir, settingsPath } = layout;
    console.log(`Sandgate: install into ${stateDir}`);
    await mkdir(stateDir, { recursive: true, mode: 0o755 });
    await mkdir(hostDir, { recursive: true, mode: 0o700 });
    const paths = await setUp({ repositoryDir: from, cacheDir }, process.env, progress);
    await progress.step('program', async () => {
      if (from !== programDir) await copyProgram(from, programDir);
      await writeCommand(layout);
      return { value: undefined, did: programDir };
    });
    await progress.step('service', async () => {
      await writeSettings(settingsPath, {});
      if (await isOfUnitWithoutRestart(layout)) await systemctl(layout, 'stop', SERVICE);
      await writeWhole(layout.unitPath, unitText(layout, paths), 0o644);
      await enable(layout);
      return { value: undefined, did: await start(layout) };
    });
    const isEnrolled = existsSync(join(hostDir, 'identity.json'));
    if (!isEnrolled) console.log('\n  Next: sandgate-host enroll <edge URL> <enrolment token>');
    return 0;
  },
};

async function writeCommand({ programDir, commandPath, ...layout }: Layout): Promise<void> {
  const program = insideRoot({ programDir, commandPath, ...layout }, programDir);
  const text = `#!/bin/sh\nexec ${program}/node ${program}/host-agent/sandgate-host.ts "$@"\n`;
  await writeWhole(commandPath, text, 0o755);
  await chmod(commandPath, 0o755);
}

async function enable({ unitPath, wantedPath }: Layout): Promise<void> {
  await mkdir(dirname(wantedPath), { recursive: true });
  await chmod(unitPath, 0o644);
  await symlink(`/etc/systemd/system/${SERVICE}`, wantedPath).catch((error: unknown) => {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  });
}

/** Whether an agent of such a unit runs: it does not know the signal that a restart sends, and would drop what runs in it. */
async function isOfUnitWithoutRestart({ unitPath }: Layout): Promise<boolean> {
  const unit = await readFile(unitPath, 'utf8').catch(() => RESTART_KILL_SIGNAL);
  return !unit.includes(RESTART_KILL_SIGNAL);
}

/** Starts it too, where it can: without an identity the unit's own condition keeps it down. */
async function start(layout: Layout): Promise<string> {
  if (!hasSystemd(layout)) return `${SERVICE} written; systemd does not run here, so it was not started`;
  await systemctl(layout, 'daemon-reload');
  await systemctl(layout, 'restart', SERVICE);
  return `${SERVICE} enabled`;
}
