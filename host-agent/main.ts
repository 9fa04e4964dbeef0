/** Entry of the host agent. It refuses to start where it cannot isolate: guest code never runs on the host itself. */
import { readConfiguration } from './configuration.ts';
import { startAgent } from './edge/agent.ts';
import { createLog } from './logging/log.ts';
import { RunscSandboxes } from './sandbox/runsc-sandboxes.ts';

const stopping = new AbortController();
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopping.abort());

process.exitCode = await main().catch((error: unknown) => {
  const message = error instanceof Error ? error.message : 'unknown fault';
  return refuse(message);
});
// Timers and sockets of a stopped agent are of no use to anybody.
process.exit();

async function main(): Promise<number> {
  if (process.getuid?.() !== 0) return refuse('must run as root, to make cgroups and mounts for sandboxes');
  const configuration = readConfiguration(process.env);
  if (!configuration.ok) return refuse(configuration.detail);
  const { hostDir, cgroupParent, logLevel, ...settings } = configuration.value;
  const { runscPath, imagesDir, guestDir, capacity, caps } = settings;
  const log = createLog(logLevel);
  const agent = await startAgent({
    ...settings,
    hostDir,
    log,
    signal: stopping.signal,
    openSandboxes: () =>
      RunscSandboxes.open({
        runscPath,
        imagesDir,
        guestDir,
        stateDir: hostDir,
        cgroupParent,
        capacity,
        caps,
        log,
      }),
  });
  if (!agent.ok) return stopping.signal.aborted ? 0 : refuse(agent.detail);
  if (!stopping.signal.aborted) {
    await new Promise((resolve) => stopping.signal.addEventListener('abort', resolve, { once: true }));
  }
  log.info({ event: 'stopping' });
  await agent.value.stop();
  return 0;
}

function refuse(reason: string): number {
  console.error(`sandgate host-agent: ${reason}`);
  return 1;
}
