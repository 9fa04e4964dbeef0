/** F30: the agent runs out of memory, in a control group of its own whose limit the kernel holds it to. */
import { existsSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Cgroups } from '../../host-agent/cgroup/cgroups.ts';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import { processStartTicks } from '../../host-agent/process/process-identity.ts';
import { verifyChain } from '../../shared/receipt-verify.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused } from './client.ts';
import { processesOf } from './leftovers.ts';
import { ORPHAN_GRACE_MS, useStack } from './stack.ts';
import { until } from './until.ts';

const MIB = 1024 * 1024;
/** What the agent has already stays charged where it was, or is more than this: either way there is no room for a call. */
const LIMIT_BYTES = 4 * MIB;
const GROUP = 'agent';
const OUTPUT_BYTES = 64 * MIB;

const stack = useStack(() => ({ SANDGATE_POOL_CEILING: '0' }));
let groups: Cgroups;
beforeAll(async () => {
  groups = await openCgroups(`/sandgate-agent-memory-${process.pid}`);
  const plenty = { cpuQuotaUs: 1_000_000, cpuPeriodUs: 100_000, cpuShares: 1024, pids: 4096 };
  await groups.create(GROUP, { memoryBytes: LIMIT_BYTES, ...plenty });
});
afterAll(async () => {
  await groups.remove(GROUP);
  await groups.removeParent();
});

/** Only its memory counts there, where the version of cgroups keeps resources apart. */
function confine(pid: number): void {
  const path = `${groups.pathOf(GROUP)}/cgroup.procs`;
  const file = [`/sys/fs/cgroup/memory${path}`, `/sys/fs/cgroup${path}`].find((name) => existsSync(name));
  if (file === undefined) throw new Error('the group of the agent is nowhere');
  writeFileSync(file, String(pid));
}

describe('an agent without memory', () => {
  test('F30 is killed and comes back: what ran is unknown, nothing of it is left, and new work is taken', {
    timeout: 6 * PATIENCE_MS,
  }, async () => {
    const session = await stack().open();
    await session.sh('echo before');
    const running = await session.detach(
      'shell',
      { command: 'echo begun; sleep 1000' },
      { timeoutMs: 2 * PATIENCE_MS },
    );
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const former = stack().hostAgentPid();
    const processes = (await processesOf(stack().stack.stateDir)).map(({ pid }) => ({
      pid,
      ticks: processStartTicks(pid),
    }));
    const ofSandboxes = processes.filter(({ pid }) => pid !== former);
    confine(former);
    const flood = { code: `print("x" * ${OUTPUT_BYTES})` };
    const flooding = await session.detach('python', flood, { timeoutMs: 2 * PATIENCE_MS });
    await until('the agent is started again', PATIENCE_MS, () => {
      const pid = stack().stack.hostAgentPid();
      return pid === undefined || pid === former ? undefined : true;
    });
    expect(groups.usage(GROUP)?.oomKills).toBeGreaterThan(0);
    await stack().stack.ready();
    await until('no process of the former agent is left', ORPHAN_GRACE_MS, () =>
      ofSandboxes.some(({ pid, ticks }) => ticks !== undefined && processStartTicks(pid) === ticks)
        ? undefined
        : true,
    );

    for (const { execution_id: id } of [running, flooding]) {
      expect(await session.ended(id, PATIENCE_MS)).toMatchObject({ status: 'unknown' });
    }
    const next = await until('the session runs calls again', PATIENCE_MS, () =>
      session.sh('echo next').catch((error: unknown) => {
        if (error instanceof Refused && error.problem.retryable) return undefined;
        throw error;
      }),
    );
    expect(next).toMatchObject({ status: 'succeeded', stdout: 'next\n', state_lost: true });
    const exported = await session.receipts();
    expect(await verifyChain(exported.receipts, exported.keys, session.id)).toMatchObject({ ok: true });
    await session.delete();
  });
});
