/** `npm start`: sets the machine up, runs a gateway and one host agent, and stops both on Ctrl-C. */

import { runMain } from '../host-agent/setup/failure.ts';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { parsePort } from './development/port.ts';
import { type Stack, startStack } from './development/stack.ts';
import { locations } from './locations.ts';

const PARENT_LOOK_INTERVAL_MS = 500;

await runMain(async () => {
  const places = locations(process.env);
  const port = parsePort(process.env.PORT);
  const progress = terminalProgress(process.stdout);
  console.log('Sandgate: set-up');
  const installation = await setUp(places, process.env, progress);
  // From here on a signal stops the children in order; before, it may simply end this process.
  const stopRequested = untilStopRequested();
  console.log('Sandgate: start');
  const stack = await progress.step('gateway and host agent', async () => ({
    value: await startStack({
      locations: places,
      installation,
      port,
      onNotice: (text) => console.error(`sandgate: ${text}`),
    }),
    did: 'running',
  }));
  await printWelcome(stack);
  await stopRequested;
  console.log('\nSandgate: stop');
  await progress.step('host agent and gateway', async () => ({ value: await stack.stop(), did: 'stopped' }));
  return 0;
});

/** A signal, or the end of npm: it does not hand a SIGTERM on, so its death is the only sign of one. */
async function untilStopRequested(): Promise<void> {
  const npmPid = process.env.npm_lifecycle_event === undefined ? undefined : process.ppid;
  let timer: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => resolve());
    timer = setInterval(() => {
      if (npmPid !== undefined && process.ppid !== npmPid) resolve();
    }, PARENT_LOOK_INTERVAL_MS);
    // A start that fails must not be kept from ending.
    timer.unref();
  });
  clearInterval(timer);
}

async function printWelcome(stack: Stack): Promise<void> {
  const token = await stack.token();
  const body = JSON.stringify({ tool_name: 'python', arguments: { code: '123456 * 654321' } });
  console.log(`
  URL    ${stack.url}
  token  ${token}
  file   ${stack.devFilePath}

  Try it:

  curl -sS ${stack.url}/v1/execute \\
    -H 'authorization: Bearer ${token}' \\
    -H 'content-type: application/json' \\
    -d '${body}'

  Ctrl-C stops everything.
`);
}
