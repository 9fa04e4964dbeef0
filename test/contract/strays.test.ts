/** What lies on the machine under an agent's name without a sandbox that owns it, beside one that lives. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { LIMITS, newSandboxId, shell } from './subject.ts';

const SET_UP_TIMEOUT_MS = 600_000;
const STRAY = 'sbx-00000000000000ff';
const LOWEST_LIMITS = {
  memoryBytes: 2 ** 26,
  cpuQuotaUs: 100_000,
  cpuPeriodUs: 100_000,
  cpuShares: 2,
  pids: 8,
};

let stateDir: string;
let cgroupParent: string;
let sandboxes: RunscSandboxes;
let imageDigest: string;

beforeAll(async () => {
  const { runscPath, imagesDir, guestDir, image } = await setUp(
    locations(process.env),
    process.env,
    silentProgress,
  );
  imageDigest = image.digest;
  stateDir = await mkdtemp(join(tmpdir(), 'sandgate-strays-'));
  cgroupParent = `/sandgate-strays-${process.pid}`;
  const opened = await RunscSandboxes.open({
    runscPath,
    imagesDir,
    guestDir,
    stateDir,
    cgroupParent,
    capacity: 2,
    caps: LIMITS,
    log: SILENT_LOG,
  });
  if (!opened.ok) throw new Error(opened.detail);
  sandboxes = opened.value;
}, SET_UP_TIMEOUT_MS);

afterAll(async () => {
  await sandboxes?.stop();
  await rm(stateDir, { recursive: true, force: true });
});

test('strays are removed at the second look, and what has an owner is not touched', async () => {
  const sandboxId = newSandboxId();
  const started = await sandboxes.start({
    sandboxId,
    imageDigest,
    limits: LIMITS,
    environment: {},
    network: null,
  });
  if (!started.ok) throw new Error(started.detail);
  const cgroups = await openCgroups(cgroupParent);
  await cgroups.create(STRAY, LOWEST_LIMITS);
  await mkdir(join(stateDir, 'bundles', STRAY));
  // To the process table this is a runsc of this agent.
  const argv = ['-e', 'sleep 300', '--', `--root=${join(stateDir, 'runsc-root')}`, 'run', STRAY];
  const stray = spawn('perl', argv, { stdio: 'ignore' });
  const died = once(stray, 'exit');

  expect(await sandboxes.removeStrays()).toEqual([]);
  expect(stray.signalCode).toBeNull();
  expect(await sandboxes.removeStrays()).toEqual([STRAY]);
  expect(await died).toEqual([null, 'SIGKILL']);
  expect(await cgroups.list()).not.toContain(STRAY);
  expect(await readdir(join(stateDir, 'bundles'))).not.toContain(STRAY);
  expect(await sandboxes.removeStrays()).toEqual([]);

  const outcome = await shell(started.value, 'echo alive');
  expect(outcome.stdout).toBe('alive\n');
  await started.value.destroy();
});
