/** Sandboxes of a stack that are at rest, and what becomes of them when their agent goes. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { SessionClient } from './client.ts';
import { cgroupsOf, processesOfSandbox } from './leftovers.ts';
import type { TestStack } from './stack.ts';
import { until } from './until.ts';

const REST_WITHIN_MS = 15_000;
const BACK_WITHIN_MS = 30_000;

export function restsOf(stack: () => TestStack) {
  async function sandboxOf(session: SessionClient): Promise<string> {
    const { sandbox_id: sandboxId } = await session.describe();
    if (sandboxId === null) throw new Error('the session has no sandbox');
    return sandboxId;
  }

  /** What says how it stands; undefined where nothing does. */
  async function heldFile(sandboxId: string): Promise<string | undefined> {
    const { stateDir } = stack().stack;
    const files = await readdir(stateDir, { recursive: true }).catch(() => []);
    const file = files.find((path) => path.endsWith(`${sandboxId}/held.json`));
    return file === undefined ? undefined : join(stateDir, file);
  }

  const atRest = (sandboxId: string): Promise<string> =>
    until('the sandbox is at rest', REST_WITHIN_MS, () => heldFile(sandboxId));

  async function returned(former: number): Promise<void> {
    await until('the agent is started again', BACK_WITHIN_MS, () =>
      [undefined, former].includes(stack().stack.hostAgentPid()) ? undefined : true,
    );
    await stack().stack.ready();
  }

  async function killAndReturn(): Promise<void> {
    const former = stack().hostAgentPid();
    await stack().stack.crashHostAgent();
    await returned(former);
  }

  const gone = (sandboxId: string, withinMs: number): Promise<true> =>
    until('the sandbox is gone', withinMs, async () => {
      const { stateDir } = stack().stack;
      const isThere =
        (await processesOfSandbox(stateDir, sandboxId)).length > 0 ||
        (await cgroupsOf(stateDir)).some((path) => path.includes(sandboxId));
      return isThere ? undefined : true;
    });

  return { sandboxOf, heldFile, atRest, returned, killAndReturn, gone };
}
