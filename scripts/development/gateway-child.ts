/** The gateway as a supervised child. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import * as z from 'zod';
import { processStartTicks } from '../../host-agent/process/process-identity.ts';
import type { Locations } from '../locations.ts';
import type { Bindings } from './bindings.ts';
import { type GatewayMessage, GatewayMessageSchema } from './gateway-message.ts';
import { SupervisedChild } from './supervised-child.ts';
import { waitUntil } from './wait-until.ts';

/** A killed workerd lets go of its files when the disk lets it. */
const WORKERD_END_MS = 20_000;

export type GatewayChildOptions = {
  locations: Locations;
  port: number;
  /** The Worker's entry, if not this repository's. */
  entry?: string;
  bindings: Bindings;
  onMessage: (message: GatewayMessage) => void;
  onRestart: (reason: string) => void;
};

export function gatewayChild(options: GatewayChildOptions): SupervisedChild {
  const { repositoryDir, stateDir } = options.locations;
  let hasWorkerdEnded = (): boolean => true;
  return new SupervisedChild({
    name: 'gateway',
    args: [join(repositoryDir, 'scripts/gateway.ts')],
    environment: {
      ...process.env,
      MINIFLARE_WORKERD_PATH: join(repositoryDir, 'scripts/development/workerd.sh'),
      SANDGATE_WORKERD: workerdPath(),
    },
    input: JSON.stringify({
      entry: options.entry ?? join(repositoryDir, 'worker/index.ts'),
      port: options.port,
      persistDir: join(stateDir, 'gateway'),
      bindings: options.bindings,
    }),
    logPath: join(stateDir, 'logs/gateway.log'),
    parentDeathSignal: 'KILL',
    stopSignal: 'SIGTERM',
    onMessage: (message) => {
      const parsed = GatewayMessageSchema.safeParse(message);
      if (!parsed.success) return;
      const pid = parsed.data.workerd_pid;
      const startTicks = processStartTicks(pid);
      hasWorkerdEnded = () => startTicks === undefined || processStartTicks(pid) !== startTicks;
      options.onMessage(parsed.data);
    },
    onRestart: options.onRestart,
    // The kernel ends workerd with a gateway that was killed, which takes a moment more.
    onStopped: () =>
      waitUntil(() => hasWorkerdEnded() || undefined, { timeoutMs: WORKERD_END_MS, intervalMs: 20 }),
  });
}

/** workerd belongs to Miniflare, so it is found from there: one version, whatever else is installed. */
function workerdPath(): string {
  const fromMiniflare = createRequire(createRequire(import.meta.url).resolve('miniflare'));
  return z.object({ default: z.string() }).parse(fromMiniflare('workerd')).default;
}
