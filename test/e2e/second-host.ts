/** Another host agent of a stack's edge, with a state folder of its own: sessions can move to it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { setUp } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { hostAgentChild } from '../../scripts/development/host-agent-child.ts';
import { locations } from '../../scripts/locations.ts';
import { leftoversOf, processesOf } from './leftovers.ts';
import type { TestStack } from './stack.ts';
import { until } from './until.ts';

const START_TIMEOUT_MS = 600_000;
const CONNECT_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 180_000;
const STOP_GRACE_MS = 30_000;

export interface SecondHost {
  hostId: string;
  stateDir: string;
  pid(): number | undefined;
  /** Everything on the machine stands still: nobody hears of it any more. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

/** To be called after `useStack`. `runscOf`: a runsc of its own, in place of the one that was set up. */
export function useSecondHost(
  stack: () => TestStack,
  runscOf: (runscPath: string, stateDir: string) => Promise<string> = async (path) => path,
): () => SecondHost {
  let running: SecondHost | undefined;
  let stop: () => Promise<void> = async () => undefined;

  beforeAll(async () => {
    const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-e2e-second-'));
    const places = { ...locations(process.env), stateDir };
    const { operator, keys, url, hostId: firstHostId } = stack().stack;
    const installation = await setUp(places, process.env, silentProgress);
    const runscPath = await runscOf(installation.runscPath, stateDir);
    const child = hostAgentChild({
      locations: places,
      installation: { ...installation, runscPath },
      edgeUrl: url,
      edgeOrigin: keys.edge_origin,
      enrollmentToken: await operator.createEnrollmentToken(),
      environment: { SANDGATE_POOL_CEILING: '0' },
      onRestart: () => undefined,
    });
    stop = async () => {
      await running?.thaw();
      await child.stop(STOP_GRACE_MS);
      const left = await leftoversOf(stateDir);
      expect(left, 'what a stopped host leaves').toEqual({ processes: [], mounts: [], cgroups: [] });
      await rm(stateDir, { recursive: true, force: true });
    };
    child.start();
    const hostId = await until('the second host is connected', CONNECT_TIMEOUT_MS, async () => {
      const hosts = await operator.hosts().catch(() => []);
      const other = hosts.find(({ host_id, state }) => host_id !== firstHostId && state === 'connected');
      return other?.host_id;
    });
    const signalAll = async (signal: 'SIGSTOP' | 'SIGCONT'): Promise<void> => {
      if (child.pid !== undefined) process.kill(child.pid, signal);
      for (const { pid } of await processesOf(stateDir)) {
        if (pid !== child.pid) process.kill(pid, signal);
      }
    };
    running = {
      hostId,
      stateDir,
      pid: () => child.pid,
      freeze: () => signalAll('SIGSTOP'),
      thaw: () => signalAll('SIGCONT'),
    };
  }, START_TIMEOUT_MS);

  afterAll(() => stop(), STOP_TIMEOUT_MS);

  return () => {
    if (running === undefined) throw new Error('there is no second host');
    return running;
  };
}
