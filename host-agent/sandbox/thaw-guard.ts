/**
 * A frozen sandbox cannot see that its agent is gone, and one that was at rest before does not: its streams are kept. So a process
 * of the agent's own waits for that: when its input closes, which happens however the agent ends, it kills every sandbox but
 * those that are held for a successor, and those too when none has come in time.
 */
import { randomBytes } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { ThawFiles } from '../cgroup/cgroups.ts';
import { argvOf, killProcess, listProcesses } from '../process/process-table.ts';
import { type SpawnedProcess, spawn } from '../process/spawn.ts';
import { HELD_FILE } from './held/held-state.ts';

/** A successor that starts later finds nothing to go on with. */
export const HELD_FOR_S = 300;
const MARK_FILE = 'guard';
/** Of one that somebody killed while its agent lives. */
const RESTART_PAUSE_MS = 1_000;
const GONE_LOOK_MS = 10;
const GONE_TIMEOUT_MS = 2_000;

/**
 * `$1` parent of the groups, `$2` file of a group that takes `$3` to thaw it, `$4` folder of the bundles, `$5` what is in
 * there of a held one, `$6` file that names the guard that is in charge, `$7` this guard, `$8` seconds. By version 1 of
 * cgroups a signal waits until its process is thawed. A group that is removed in between is no matter.
 */
const SCRIPT = `
cat >/dev/null
in_charge() { [ "$(cat "$mark" 2>/dev/null)" = "$name" ]; }
end() {
  [ -e "$1/cgroup.kill" ] && echo 1 >"$1/cgroup.kill"
  [ -e "$1/cgroup.procs" ] && while read -r pid; do kill -9 "$pid"; done <"$1/cgroup.procs"
  [ -e "$1/$file" ] && echo "$value" >"$1/$file"
}
file=$2 value=$3 mark=$6 name=$7 left=$8
while in_charge; do
  found=
  for group in "$1"/*/; do
    [ -d "$group" ] && found=yes
    [ "$left" -gt 0 ] && [ -e "$4/$(basename "$group")/$5" ] && continue
    in_charge && end "\${group%/}"
  done 2>/dev/null
  [ "$found" ] && [ "$left" -gt 0 ] || exit 0
  sleep 1
  left=$((left - 1))
done
:`;

const NAME = 'sandgate-thaw-guard';

/** Those of agents that are gone, where whoever asks for it leaves nothing: `bundlesDir` is the agents'. */
export async function endFormerGuards(bundlesDir: string): Promise<void> {
  const guards = (await listProcesses()).filter(
    ({ argv }) => argv.includes(NAME) && argv.includes(bundlesDir),
  );
  for (const { pid } of guards) killProcess(pid);
  const endMs = performance.now() + GONE_TIMEOUT_MS;
  for (const { pid } of guards) {
    while ((await argvOf(pid)).includes(NAME) && performance.now() < endMs) await wait(GONE_LOOK_MS);
  }
}

export interface ThawGuard {
  /** Once there is room on a disk that had none at the start. Throws where there is still none. */
  takeOffice(): void;
  /** Settles when the guard is gone, and each former one that has not seen yet that it is relieved. */
  stop(): Promise<void>;
}

export interface GuardedFolders {
  bundlesDir: string;
  stateDir: string;
}

/** From now on no former guard ends anything. */
export function startThawGuard(
  { parentDir, file, value }: ThawFiles,
  { bundlesDir, stateDir }: GuardedFolders,
  heldForS: number = HELD_FOR_S,
): ThawGuard {
  const mark = join(stateDir, MARK_FILE);
  const name = randomBytes(16).toString('hex');
  const takeOffice = (): void => {
    writeFileSync(`${mark}.next`, `${name}\n`, { mode: 0o600 });
    renameSync(`${mark}.next`, mark);
  };
  try {
    takeOffice();
  } catch {
    // A full disk takes no new file, but lets one go.
    leaveOfficeToNobody(mark);
  }
  const watched = [parentDir, file, value, bundlesDir, HELD_FILE, mark, name, String(heldForS)];
  const begin = (): SpawnedProcess => {
    const guard = spawn({
      file: '/bin/sh',
      argv: ['-c', SCRIPT, NAME, ...watched],
      environment: { PATH: '/usr/bin:/bin' },
    });
    guard.stdout.resume();
    guard.stderr.resume();
    void guard.exited.then(async () => {
      await wait(RESTART_PAUSE_MS, undefined, { ref: false });
      if (!isStopped) current = begin();
    });
    return guard;
  };
  let isStopped = false;
  let current = begin();
  return {
    takeOffice,
    async stop() {
      isStopped = true;
      current.kill('SIGKILL');
      current.stdin.end();
      await current.exited;
      await endFormerGuards(bundlesDir);
    },
  };
}

function leaveOfficeToNobody(mark: string): void {
  try {
    rmSync(mark, { force: true });
  } catch {
    // Nor does one that cannot be written; no agent serves on such a disk.
  }
}
