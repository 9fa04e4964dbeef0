/** Entry of the host agent. It refuses to start where it cannot isolate: guest code never runs on the host itself. */
import { readConfiguration } from './configuration.ts';
import { runDaemon } from './daemon.ts';
import { loadDigestLibrary } from './digest/library.ts';

const stopping = new AbortController();
// The second signal does not wait for what runs; SIGINT, which a person sends, never does.
const hurrying = new AbortController();
// Only who starts another agent at once says so: else what is left for that one would wait for nobody.
const succeeded = new AbortController();
process.on('SIGINT', () => {
  hurrying.abort();
  stopping.abort();
});
process.on('SIGTERM', () => {
  if (stopping.signal.aborted) hurrying.abort();
  stopping.abort();
});
process.on('SIGUSR2', () => {
  if (!stopping.signal.aborted) succeeded.abort();
  stopping.abort();
});

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
  const loaded = loadDigestLibrary(configuration.value.digestLibrary);
  if (!loaded.ok) return refuse(loaded.detail);
  const ended = await runDaemon(configuration.value, {
    stopping: stopping.signal,
    hurrying: hurrying.signal,
    succeeded: succeeded.signal,
  });
  return ended.ok || stopping.signal.aborted ? 0 : refuse(ended.detail);
}

function refuse(reason: string): number {
  console.error(`sandgate host-agent: ${reason}`);
  return 1;
}
