/** Removes all that one sandbox has on the machine, or says again and again that it cannot. */
import { setTimeout as wait } from 'node:timers/promises';
import type { Log } from '../logging/log.ts';
import type { Engine } from './engine.ts';

const DELETE_TIMEOUT_MS = 5_000;
const ATTEMPTS = 10;
const PAUSE_MS = 500;

/** True when nothing is left. Never rejects. */
export async function removeRemains(engine: Engine, sandboxId: string, log: Log): Promise<boolean> {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const detail = await tryToRemove(engine, sandboxId);
    if (detail === undefined) return true;
    log.error({ event: 'sandbox_not_removed', sandbox_id: sandboxId, attempt, detail });
    await wait(PAUSE_MS);
  }
  return false;
}

/** Undefined when it worked, else why not. */
async function tryToRemove(
  { runsc, cgroups, bundles }: Engine,
  sandboxId: string,
): Promise<string | undefined> {
  try {
    cgroups.kill(sandboxId);
    const deleted = await runsc.delete(sandboxId, DELETE_TIMEOUT_MS);
    if (!deleted.ok) return deleted.detail;
    if (!(await cgroups.remove(sandboxId))) return 'its control group is busy';
    await bundles.remove(sandboxId);
    return undefined;
  } catch (error: unknown) {
    return error instanceof Error ? error.message : 'it could not be removed';
  }
}
