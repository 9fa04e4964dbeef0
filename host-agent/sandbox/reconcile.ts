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
export async function removeLeftovers(
  engine: Engine,
  isSpared: (sandboxId: string) => boolean = () => false,
): Promise<string[]> {
  const removed = new Set<string>();
  const lastPassMs = performance.now() + PATIENCE_MS;
  for (;;) {
    for (const name of await removeWhatIsThere(engine, isSpared)) removed.add(name);
    if (performance.now() > lastPassMs || !(await isSomethingLeft(engine, isSpared)))
      return [...removed].sort();
    await wait(PASS_PAUSE_MS);
  }
}

async function isSomethingLeft(
  { runsc, cgroups, bundles }: Engine,
  isSpared: (sandboxId: string) => boolean,
): Promise<boolean> {
  const processes = (await runsc.sandboxProcesses()).map(({ sandboxId }) => sandboxId);
  const left = [...processes, ...(await cgroups.list()), ...(await readdir(bundles.dir))];
  return left.some((name) => !isSpared(name));
}

/**
 * Kills first and removes afterwards, so that nothing of a sandbox runs on while its traces go. Side by side: what will not
 * go holds up the rest once, however much of it there is.
 */
async function removeWhatIsThere(
  { runsc, cgroups, bundles, runscRootDir }: Engine,
  isSpared: (sandboxId: string) => boolean,
): Promise<string[]> {
  const removed = new Set<string>();
  const groups = (await cgroups.list()).filter((name) => !isSpared(name));
  for (const name of groups) cgroups.kill(name);
  await runsc.killProcesses(isSpared);

  // runsc is not asked: it would wait for the answers of those that are spared, which stand still.
  const known = (await readdir(runscRootDir)).map(sandboxOfStateFile);
  const ids = [...new Set(known)].filter((id) => id !== '' && !isSpared(id));
  await Promise.all(ids.map((id) => runsc.delete(id, DELETE_TIMEOUT_MS)));
  for (const id of ids) removed.add(id);
  const groupsRemoved = await Promise.all(groups.map((name) => cgroups.remove(name)));
  for (const [index, name] of groups.entries()) if (groupsRemoved[index] === true) removed.add(name);
  const folders = (await readdir(bundles.dir)).filter((name) => !isSpared(name));
  const emptied = folders.map((name) => bundles.pathOf(name));
  for (const path of await mountsBelow([...emptied, runscRootDir])) await unmount(path);
  for (const name of folders) {
    await bundles.remove(name);
    removed.add(name);
  }
  // State that runsc cannot read back is in no list.
  for (const name of await readdir(runscRootDir)) {
    if (isSpared(sandboxOfStateFile(name))) continue;
    await rm(join(runscRootDir, name), { recursive: true, force: true });
  }
  return [...removed].sort();
}

/** As runsc names what it keeps: `<id>_sandbox:<id>.state`, `runsc-<id>.sock`. */
function sandboxOfStateFile(name: string): string {
  return /^(?:runsc-)?([a-z0-9-]+?)(?:_sandbox:.*|\.sock)$/.exec(name)?.[1] ?? '';
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
