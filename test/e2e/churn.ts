/** Makes and removes many sandboxes; what the agent and the machine hold afterwards is what they held before. */
import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { PATIENCE_MS } from '../patience.ts';
import { cgroupsOf, processesOf } from './leftovers.ts';
import type { TestStack } from './stack.ts';
import { until } from './until.ts';

const AT_ONCE = 2;
/** Sockets of the agent that are being closed or opened anew at the moment of counting. */
const DESCRIPTOR_SLACK = 4;

interface Holdings {
  descriptors: number;
  cgroups: number;
  mounts: number;
  folders: string[];
  processes: number;
}

/** On a stack that makes no sandboxes ahead. */
export async function churn(stack: TestStack, sandboxes: number): Promise<void> {
  // The first ones fill caches and pools of connections.
  await makeAndRemove(stack, AT_ONCE);
  await until('the first ones are removed', PATIENCE_MS, async () => {
    const bundles = await readdir(join(stack.stack.stateDir, 'host/bundles'));
    return bundles.length === 0 ? true : undefined;
  });
  await expectSameHoldings(stack, () => makeAndRemove(stack, sandboxes));
}

/** Of the agent and of the machine, before the work and after it. */
export async function expectSameHoldings(stack: TestStack, work: () => Promise<void>): Promise<void> {
  const before = await settledHoldings(stack);
  await work();
  await until('what is held is as before', PATIENCE_MS, async () => {
    const now = await holdings(stack);
    return isSame(now, before) ? true : undefined;
  }).catch(async () => {
    expect(await holdings(stack)).toEqual(before);
  });
}

async function makeAndRemove(stack: TestStack, count: number): Promise<void> {
  let left = count;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const session = await stack.open();
      const ran = await session.sh('echo lived');
      expect(ran.stdout).toBe('lived\n');
      await session.delete();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function settledHoldings(stack: TestStack): Promise<Holdings> {
  let last = await holdings(stack);
  return until('what is held has settled', PATIENCE_MS, async () => {
    const now = await holdings(stack);
    const isSettled = isSame(now, last);
    last = now;
    return isSettled ? now : undefined;
  });
}

function isSame(now: Holdings, before: Holdings): boolean {
  const { descriptors: _now, ...rest } = now;
  const { descriptors: _before, ...restBefore } = before;
  if (now.descriptors > before.descriptors + DESCRIPTOR_SLACK) return false;
  return JSON.stringify(rest) === JSON.stringify(restBefore);
}

async function holdings(stack: TestStack): Promise<Holdings> {
  const { stateDir } = stack.stack;
  const hostDir = join(stateDir, 'host');
  const mounts = (await readFile(`/proc/${stack.hostAgentPid()}/mountinfo`, 'utf8')).trim().split('\n');
  return {
    descriptors: (await readdir(`/proc/${stack.hostAgentPid()}/fd`)).length,
    cgroups: (await cgroupsOf(stateDir)).length,
    // Other tests of this machine mount things below the folder of temporary files.
    mounts: mounts.filter((line) => line.includes(stateDir) || !line.includes(` ${tmpdir()}/`)).length,
    folders: [
      ...(await readdir(hostDir)),
      ...(await readdir(join(hostDir, 'bundles'))),
      ...(await readdir(join(hostDir, 'runsc-root'))),
    ],
    processes: (await processesOf(stateDir)).length,
  };
}
