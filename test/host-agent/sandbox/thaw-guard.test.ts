/** What waits for the end of an agent, as processes on this machine. */
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { listProcesses } from '../../../host-agent/process/process-table.ts';
import { spawn } from '../../../host-agent/process/spawn.ts';
import { startThawGuard } from '../../../host-agent/sandbox/thaw-guard.ts';

const MODULE = fileURLToPath(new URL('../../../host-agent/sandbox/thaw-guard.ts', import.meta.url));

let stateDir: string;
let bundlesDir: string;
let groups: { parentDir: string; file: string; value: string };

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'sandgate-guard-'));
  bundlesDir = join(stateDir, 'bundles');
  const parentDir = join(stateDir, 'groups');
  // A group that stays: whoever looks after it looks again each second.
  mkdirSync(join(parentDir, 'held'), { recursive: true });
  mkdirSync(join(bundlesDir, 'held'), { recursive: true });
  groups = { parentDir, file: 'freezer.state', value: 'THAWED' };
});

afterEach(() => rmSync(stateDir, { recursive: true, force: true }));

async function guards(): Promise<number[]> {
  return (await listProcesses()).filter(({ argv }) => argv.includes(bundlesDir)).map(({ pid }) => pid);
}

/** An agent that is killed once its guard is there. */
async function agentThatDies(): Promise<void> {
  const code = `
    const { startThawGuard } = await import(${JSON.stringify(MODULE)});
    startThawGuard(...JSON.parse(process.env.ARGUMENTS));
    process.stdout.write('there');
    setInterval(() => undefined, 1000);
  `;
  const agent = spawn({
    file: process.execPath,
    argv: ['--input-type=module', '--eval', code],
    environment: { ARGUMENTS: JSON.stringify([groups, { bundlesDir, stateDir }]) },
  });
  agent.stderr.resume();
  await once(agent.stdout, 'data');
  agent.kill('SIGKILL');
  await agent.exited;
}

test('the guard of an agent that was killed is gone with the agent that came after it', async () => {
  await agentThatDies();
  expect(await guards()).not.toEqual([]);
  const guard = startThawGuard(groups, { bundlesDir, stateDir });
  await guard.stop();
  expect(await guards()).toEqual([]);
});
