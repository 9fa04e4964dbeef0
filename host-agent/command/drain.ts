/** `drain` and `resume`: no new sandboxes until further notice, and back. */
import { setTimeout as wait } from 'node:timers/promises';
import { askAgent, type LocalRequest } from '../local-control/client.ts';
import type { AgentStatus } from '../local-control/status.ts';
import { EXIT_FAILED, fromFailure, wrongUse } from './failure.ts';
import type { Layout } from './layout.ts';
import type { Subcommand } from './subcommand.ts';

const LOOK_INTERVAL_MS = 250;
const DEFAULT_TIMEOUT_S = 600;
const MAX_TIMEOUT_S = 86_400;

export const drain: Subcommand = {
  summary:
    'Takes no new sandbox and waits for executions that run (with --sandboxes: until no sandbox is left).',
  usage: '[--timeout SECONDS] [--sandboxes]',
  options: { timeout: { type: 'string' }, sandboxes: { type: 'boolean' } },
  positionals: [0, 0],
  async run({ layout, text, flag }) {
    const timeoutS = Number(text('timeout') ?? DEFAULT_TIMEOUT_S);
    if (!(timeoutS >= 0 && timeoutS <= MAX_TIMEOUT_S))
      throw wrongUse(`--timeout is a number of seconds, at most ${MAX_TIMEOUT_S}`);
    const left = (now: AgentStatus): number => (flag('sandboxes') ? now.sandboxes : now.executions);
    const deadlineMs = performance.now() + timeoutS * 1000;
    let now = await ask(layout, 'drain');
    while (left(now) > 0 && performance.now() < deadlineMs) {
      await wait(LOOK_INTERVAL_MS);
      now = await ask(layout, 'status');
    }
    const isDrained = left(now) === 0;
    console.log(
      `${isDrained ? 'drained' : `not drained within ${timeoutS} s`}: ${now.executions} executions run, ${now.sandboxes} sandboxes are left`,
    );
    console.log('no new sandbox is taken until "sandgate-host resume" or the next start');
    return isDrained ? 0 : EXIT_FAILED;
  },
};

export const resume: Subcommand = {
  summary: 'Takes new sandboxes again.',
  usage: '',
  options: {},
  positionals: [0, 0],
  async run({ layout }) {
    const now = await ask(layout, 'resume');
    console.log(`${now.state}: ${now.sandboxes} of ${now.capacity} sandboxes`);
    return 0;
  },
};

async function ask({ hostDir }: Layout, request: LocalRequest): Promise<AgentStatus> {
  const asked = await askAgent(hostDir, request);
  if (!asked.ok) throw fromFailure(asked);
  return asked.value;
}
