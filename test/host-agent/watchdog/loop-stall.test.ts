import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

const PROCESS = fileURLToPath(new URL('../../fixtures/stalling-process.ts', import.meta.url));

async function start(): Promise<ChildProcess> {
  const child = fork(PROCESS, { execArgv: [], stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  await once(child, 'message');
  return child;
}

test('an event loop that stands still ends the process', async () => {
  const child = await start();
  child.send('stall');
  const [code, signal] = await once(child, 'exit');
  expect({ code, signal }).toEqual({ code: null, signal: 'SIGKILL' });
});

test('a process that was stopped longer than that lives on', async () => {
  const child = await start();
  child.kill('SIGSTOP');
  await wait(4_000);
  child.kill('SIGCONT');
  await wait(1_500);
  child.send('ping');
  expect((await once(child, 'message'))[0]).toBe('pong');
});
