/** Waits until a process has done what it does in the background, so that no row measures the work of another. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';

const LOOK_MS = 300;
/** Of one processor. Objects that fall asleep one after the other take a tenth of one. */
const IDLE_SHARE = 0.04;
/** What begins only a while after the end of a row has begun by then. */
const IDLE_LOOKS = 5;
const PATIENCE_MS = 120_000;

/** Gives how long that took, without the time for which it was idle already. */
export async function untilIdle(pid: number): Promise<number> {
  const startedAt = performance.now();
  let busyUntil = startedAt;
  let cpuMs = cpuTimeMs(pid);
  for (let idle = 0; idle < IDLE_LOOKS; ) {
    const lookedAt = performance.now();
    if (lookedAt - startedAt > PATIENCE_MS) throw new Error(`process ${pid} does not come to rest`);
    await wait(LOOK_MS);
    const now = cpuTimeMs(pid);
    const isIdle = now - cpuMs < IDLE_SHARE * (performance.now() - lookedAt);
    cpuMs = now;
    idle = isIdle ? idle + 1 : 0;
    if (!isIdle) busyUntil = performance.now();
  }
  return busyUntil - startedAt;
}

/** Of all its threads, so far. */
function cpuTimeMs(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  const nanoseconds = readdirSync(tasks).map((id) => {
    try {
      return Number(readFileSync(`${tasks}/${id}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      // It has ended since.
      return 0;
    }
  });
  return nanoseconds.reduce((sum, each) => sum + each, 0) / 1e6;
}
