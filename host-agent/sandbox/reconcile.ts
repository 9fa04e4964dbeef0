/** Removes what a former agent left behind: processes, containers, control groups, mounts, folders. */
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { run } from '../process/run.ts';
import type { Engine } from './engine.ts';

const DELETE_TIMEOUT_MS = 5_000;
const UMOUNT_TIMEOUT_MS = 5_000;
/** No further pass is begun after that: an agent that takes no work helps nobody. */
const PATIENCE_MS = 20_000;
const PASS_PAUSE_MS = 200;

/** Again and again until nothing is left, or until only what will not go is: the watchdog goes on with that. */
export async function removeLeftovers(engine: Engine): Promise<string[]> {
  const removed = new Set<string>();
  const lastPassMs = performance.now() + PATIENCE_MS;
  for (;;) {
    for (const name of await removeWhatIsThere(engine)) removed.add(name);
    if (performance.now() > lastPassMs || !(await isSomethingLeft(engine))) return [...removed].sort();
    await wait(PASS_PAUSE_MS);
  }
}

async function isSomethingLeft({ runsc, cgroups, bundles }: Engine): Promise<boolean> {
  const left = [await runsc.sandboxProcesses(), await cgroups.list(), await readdir(bundles.dir)];
  return left.some((names) => names.length > 0);
}

/**
 * Kills first and removes afterwards, so that nothing of a sandbox runs on while its traces go. Side by side: what will not
 * go holds up the rest once, however much of it there is.
 */
async function removeWhatIsThere({ runsc, cgroups, bundles, runscRootDir }: Engine): Promise<string[]> {
  const removed = new Set<string>();
  const groups = await cgroups.list();
  for (const name of groups) cgroups.kill(name);
  await runsc.killProcesses();

  const listed = await runsc.list();
  const ids = listed.ok ? listed.value.map(({ id }) => id) : [];
  await Promise.all(ids.map((id) => runsc.delete(id, DELETE_TIMEOUT_MS)));
  for (const id of ids) removed.add(id);
  const groupsRemoved = await Promise.all(groups.map((name) => cgroups.remove(name)));
  for (const [index, name] of groups.entries()) if (groupsRemoved[index] === true) removed.add(name);
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
