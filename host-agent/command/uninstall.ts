/** `uninstall`: stops the agent and removes everything that install and the agent have made. */
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { openCgroups } from '../cgroup/open.ts';
import { defaultCgroupParent } from '../configuration.ts';
import { lockState } from '../journal/state-lock.ts';
import { killProcess, listProcesses } from '../process/process-table.ts';
import { run } from '../process/run.ts';
import { endFormerGuards } from '../sandbox/thaw-guard.ts';
import { SETUP_PACKAGES } from '../setup/apt-packages.ts';
import { requireRoot } from '../setup/machine.ts';
import { StreamKeeper } from '../stream-keeper/stream-keeper.ts';
import { CommandFailure, wrongUse } from './failure.ts';
import { insideRoot, type Layout, SERVICE } from './layout.ts';
import { systemctl } from './service.ts';
import { readSettings } from './settings.ts';
import type { Subcommand } from './subcommand.ts';

const END_TIMEOUT_MS = 10_000;
const END_LOOK_MS = 50;

export const uninstall: Subcommand = {
  summary: 'Removes everything, the identity of this host too; --yes is needed when it is enrolled.',
  usage: '[--yes] [--root DIR]',
  options: { yes: { type: 'boolean' } },
  positionals: [0, 0],
  async run({ layout, flag }) {
    requireRoot();
    const { stateDir, hostDir, unitPath, wantedPath, commandPath } = layout;
    if (!existsSync(stateDir) && !existsSync(unitPath))
      throw new CommandFailure('Sandgate is not installed here');
    if (existsSync(join(hostDir, 'identity.json')) && !flag('yes')) {
      throw wrongUse('this host is enrolled, and its key is removed for good: sandgate-host uninstall --yes');
    }
    if (existsSync(unitPath)) await systemctl(layout, 'stop', SERVICE);
    if (existsSync(hostDir)) await endSandboxes(layout);
    for (const path of [wantedPath, unitPath, commandPath]) await rm(path, { force: true });
    await systemctl(layout, 'daemon-reload');
    await rm(stateDir, { recursive: true, force: true });
    console.log(`removed ${stateDir} and ${SERVICE}`);
    console.log(`Debian packages stay: ${SETUP_PACKAGES.join(' ')}`);
    return 0;
  },
};

/** An agent that stopped by itself left nothing; one that was killed may have. runsc need not work any more. */
async function endSandboxes(layout: Layout): Promise<void> {
  const { hostDir, settingsPath } = layout;
  const lock = await lockState(hostDir);
  if (!lock.ok) throw new CommandFailure('the agent still runs: stop it first');
  try {
    const settings = await readSettings(settingsPath);
    await endFormerGuards(join(hostDir, 'bundles'));
    const parent = settings.SANDGATE_CGROUP_PARENT ?? defaultCgroupParent(insideRoot(layout, hostDir));
    // On a machine that lacks them no sandbox has run since it was booted.
    const cgroups = await openCgroups(parent).catch(() => undefined);
    const groups = (await cgroups?.list()) ?? [];
    for (const name of groups) cgroups?.kill(name);
    const mark = `--root=${hostDir}/runsc-root`;
    await endProcesses(mark);
    await new StreamKeeper({ program: undefined, directory: hostDir, waitS: 0 }).end();
    for (const name of groups) await cgroups?.remove(name);
    await cgroups?.removeParent();
    await unmountBelow(hostDir);
    if (((await cgroups?.list()) ?? []).length > 0)
      throw new CommandFailure(`a control group below ${parent} cannot be removed`);
  } finally {
    await lock.value.release();
  }
}

/** Settles when they are gone: until then they hold mounts and control groups. */
async function endProcesses(mark: string): Promise<void> {
  const deadlineMs = performance.now() + END_TIMEOUT_MS;
  for (;;) {
    const left = (await listProcesses()).filter(({ argv }) => argv.includes(mark));
    if (left.length === 0) return;
    if (performance.now() > deadlineMs) {
      throw new CommandFailure(`process ${left[0]?.pid} of a sandbox cannot be ended`);
    }
    for (const { pid } of left) killProcess(pid);
    await setTimeout(END_LOOK_MS);
  }
}

/** Removing the folder must not reach through a mount. */
async function unmountBelow(dir: string): Promise<void> {
  const mountPoints = (await readFile('/proc/self/mountinfo', 'utf8'))
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  for (const path of mountPoints.filter((point) => point.startsWith(`${dir}/`)).reverse()) {
    await run(
      { file: '/bin/umount', argv: ['--lazy', '--', path], environment: {} },
      { timeoutMs: 5_000, maxOutputBytes: 1024 },
    );
  }
}
