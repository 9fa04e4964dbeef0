/** Removes what a former agent left behind: processes, containers, control groups, mounts, folders. */
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { run } from '../process/run.ts';
import type { Engine } from './engine.ts';

const DELETE_TIMEOUT_MS = 10_000;
const UMOUNT_TIMEOUT_MS = 5_000;
const MAX_PASSES = 10;
const PASS_PAUSE_MS = 200;

/** Again and again until nothing is left, or until only what will not go is: the watchdog goes on with that. */
export async function removeLeftovers(engine: Engine): Promise<string[]> {
  const removed = new Set<string>();
  for (let pass = 1; ; pass += 1) {
    for (const name of await removeWhatIsThere(engine)) removed.add(name);
    if (pass === MAX_PASSES || !(await isSomethingLeft(engine))) return [...removed].sort();
    await wait(PASS_PAUSE_MS);
  }
}

async function isSomethingLeft({ runsc, cgroups, bundles }: Engine): Promise<boolean> {
  const left = [await runsc.sandboxProcesses(), await cgroups.list(), await readdir(bundles.dir)];
  return left.some((names) => names.length > 0);
}

/** Kills first and removes afterwards, so that nothing of a sandbox runs on while its traces go. */
async function removeWhatIsThere({ runsc, cgroups, bundles, runscRootDir }: Engine): Promise<string[]> {
  const removed = new Set<string>();
  const groups = await cgroups.list();
  for (const name of groups) cgroups.kill(name);
  await runsc.killProcesses();

  const listed = await runsc.list();
  for (const { id } of listed.ok ? listed.value : []) {
    await runsc.delete(id, DELETE_TIMEOUT_MS);
    removed.add(id);
  }
  for (const name of groups) {
    if (await cgroups.remove(name)) removed.add(name);
  }
  for (const path of await mountsBelow([bundles.dir, runscRootDir])) await unmount(path);
  for (const name of await readdir(bundles.dir)) {
    await bundles.remove(name);
    removed.add(name);
  }
  // State that runsc cannot read back is in no list.
  for (const name of await readdir(runscRootDir)) {
    await rm(join(runscRootDir, name), { recursive: true, force: true });
  }
  return [...removed].sort();
}

/** Deepest first, the order in which they can be unmounted. */
async function mountsBelow(dirs: string[]): Promise<string[]> {
  const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
  const mountPoints = lines.map((line) => line.split(' ')[4] ?? '');
  return mountPoints.filter((path) => dirs.some((dir) => path.startsWith(`${dir}/`))).reverse();
}

async function unmount(path: string): Promise<void> {
  await run(
    { file: '/bin/umount', argv: ['--lazy', '--', path], environment: {} },
    { timeoutMs: UMOUNT_TIMEOUT_MS, maxOutputBytes: 4096 },
  );
}
