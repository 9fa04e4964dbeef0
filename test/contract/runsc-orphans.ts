/** What an agent that is killed in the middle of a call leaves behind, and that its successor finds all of it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import type { RunscSandboxesOptions } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import { until } from '../e2e/until.ts';
import { STUCK_MS } from '../patience.ts';
import type { GetSubject } from './subject.ts';

const AGENT = fileURLToPath(new URL('../fixtures/agent-until-killed.ts', import.meta.url));

export function describeOrphans(
  subject: GetSubject,
  options: () => Omit<RunscSandboxesOptions, 'log'>,
): void {
  it.each(['busy', 'idle'])(
    'a sandbox that is %s dies with an agent that is killed, and the next agent removes its traces',
    async (doing) => {
      const agent = spawn(
        process.execPath,
        [AGENT, JSON.stringify(options()), subject().imageDigest, doing],
        {
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      );
      const [sandboxId] = await once(createInterface(agent.stdout), 'line');
      if (typeof sandboxId !== 'string') throw new TypeError('the agent printed no sandbox id');
      const processes = async (): Promise<string[]> =>
        (await subject().tracesOf(sandboxId)).filter((trace) => trace.startsWith('process'));
      // A frozen sandbox gives runsc no answer.
      if (doing === 'busy') expect(await processes()).not.toEqual([]);

      agent.kill('SIGKILL');
      await once(agent, 'exit');
      await until('the orphan is dead', STUCK_MS, async () =>
        (await processes()).length === 0 ? true : undefined,
      );
      const { removed } = await (await subject().restarted()).reconcile();
      expect(removed).toContain(sandboxId);
      expect(await subject().tracesOf(sandboxId)).toEqual([]);
    },
  );
}
