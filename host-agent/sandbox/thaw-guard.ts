/**
 * A frozen sandbox cannot see that its agent is gone and end. So a process of the agent's own waits for that: it thaws
 * every sandbox when its pipe closes, which happens however the agent ends.
 */
import type { ThawFiles } from '../cgroup/cgroups.ts';
import { spawn } from '../process/spawn.ts';

/** `$1/<group>/$2` takes `$3`. A group that is removed in between is no matter. */
const SCRIPT =
  'cat >/dev/null; for file in "$1"/*/"$2"; do [ -e "$file" ] && echo "$3" >"$file"; done 2>/dev/null; :';

export interface ThawGuard {
  /** Settles when the guard is gone. */
  stop(): Promise<void>;
}

export function startThawGuard({ parentDir, file, value }: ThawFiles): ThawGuard {
  const guard = spawn({
    file: '/bin/sh',
    argv: ['-c', SCRIPT, 'sandgate-thaw-guard', parentDir, file, value],
    environment: { PATH: '/usr/bin:/bin' },
  });
  guard.stdout.resume();
  guard.stderr.resume();
  return {
    async stop() {
      guard.stdin.end();
      await guard.exited;
    },
  };
}
