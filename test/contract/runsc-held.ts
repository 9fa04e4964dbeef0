/** A sandbox in which nothing is under way outlives its agent: for a successor, or until none has come in time. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { openCgroups } from '../../host-agent/cgroup/open.ts';
import type { RunscSandboxesOptions } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { until } from '../e2e/until.ts';
import { HELD_OWNER } from '../fixtures/held-owner.ts';
import { type GetSubject, python, shell } from './subject.ts';

type Options = Omit<RunscSandboxesOptions, 'log'>;

const AGENT = fileURLToPath(new URL('../fixtures/agent-until-killed.ts', import.meta.url));
const GONE_WITHIN_MS = 10_000;

export function describeHeld(subject: GetSubject, options: () => Options): void {
  const processesOf = async (sandboxId: string): Promise<string[]> =>
    (await subject().tracesOf(sandboxId)).filter((trace) => trace.startsWith('process'));
  const gone = (sandboxId: string, withinMs: number): Promise<true> =>
    until('the sandbox is gone', withinMs, async () =>
      (await processesOf(sandboxId)).length === 0 ? true : undefined,
    );

  /** Gives the id of the sandbox that it had. */
  async function killedAgent(heldForS: number): Promise<string> {
    const argv = [JSON.stringify({ ...options(), heldForS }), subject().imageDigest, 'held'];
    const agent = spawn(process.execPath, [AGENT, ...argv], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [sandboxId] = await once(createInterface(agent.stdout), 'line');
    if (typeof sandboxId !== 'string') throw new TypeError('the agent printed no sandbox id');
    agent.kill('SIGKILL');
    await once(agent, 'exit');
    return sandboxId;
  }

  describe('a sandbox at rest whose agent is killed', () => {
    it('stands still until its successor takes it, and goes on at the exact byte', async () => {
      const sandboxId = await killedAgent(60);
      const successor = await subject().restarted();
      expect((await successor.reconcile()).removed).not.toContain(sandboxId);
      expect((await openCgroups(options().cgroupParent)).isFrozen(sandboxId)).toBe(true);
      expect(successor.takeHeld?.({ ...HELD_OWNER, epoch: HELD_OWNER.epoch + 1 })).toBeUndefined();
      const held = successor.takeHeld?.(HELD_OWNER);
      if (held === undefined) throw new Error('the successor has no such sandbox');
      expect(held.owner).toEqual(HELD_OWNER);
      expect(await python(held.sandbox, 'kept + 1')).toMatchObject({ value: '42', stateLost: false });
      const told = await shell(held.sandbox, 'echo "$KEPT $PWD"; cat', { stdin: 'and input\n' });
      expect(told).toMatchObject({ status: 'succeeded', stdout: 'here /tmp\nand input\n' });
      await held.sandbox.destroy();
      expect(await subject().tracesOf(sandboxId)).toEqual([]);
      await successor.stop();
    });

    it('is ended by a successor that has no use for it', async () => {
      const sandboxId = await killedAgent(60);
      const successor = await subject().restarted();
      await successor.reconcile();
      await successor.endHeld?.();
      expect(await subject().tracesOf(sandboxId)).toEqual([]);
      await successor.stop();
    });

    it('is ended without one when its time is over', async () => {
      const sandboxId = await killedAgent(3);
      expect(await processesOf(sandboxId)).not.toEqual([]);
      await gone(sandboxId, 3_000 + GONE_WITHIN_MS);
      const successor = await subject().restarted();
      expect((await successor.reconcile()).removed).toContain(sandboxId);
      expect(await subject().tracesOf(sandboxId)).toEqual([]);
      await successor.stop();
    });
  });
}
