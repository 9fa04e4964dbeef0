/** Child process of a stack: the gateway on workerd. Says `ready` and each new pid of workerd over IPC. */
import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { findChildProcess } from './development/child-process-search.ts';
import type { GatewayMessage } from './development/gateway-message.ts';
import { startGateway } from './development/gateway-runtime.ts';

const LOOK_INTERVAL_MS = 200;
/** Miniflare restarts workerd by itself; when that fails, this process ends and is restarted as a whole. */
const RESTART_PATIENCE_MS = 3_000;

const ConfigurationSchema = z.object({
  entry: z.string(),
  port: z.int(),
  persistDir: z.string(),
  bindings: z.record(z.string(), z.string()),
});
const configuration = ConfigurationSchema.parse(JSON.parse(readFileSync(0, 'utf8')));
const say = (message: GatewayMessage): void => void process.send?.(message);
let workerdPid: number | undefined;
let missingSinceMs: number | undefined;

const { url, miniflare } = await startGateway({ ...configuration, onRuntimeRestart: look }).catch(
  (error: unknown) => {
    const lines = error instanceof Error ? error.message.split('\n') : ['unknown failure'];
    console.error(`gateway: ${lines.slice(0, 2).join(' ')}`);
    process.exit(1);
  },
);
const timer = setInterval(look, LOOK_INTERVAL_MS);
for (const signal of ['SIGTERM', 'SIGINT', 'disconnect'] as const) {
  process.once(signal, () => {
    clearInterval(timer);
    void miniflare.dispose().finally(() => process.exit(0));
  });
}
look();
say({ type: 'ready', url: url.href, workerd_pid: workerdPid ?? 0 });

function look(): void {
  const pid = findChildProcess(process.pid, 'workerd');
  if (pid !== undefined) {
    missingSinceMs = undefined;
    if (pid !== workerdPid && workerdPid !== undefined) say({ type: 'workerd_restarted', workerd_pid: pid });
    workerdPid = pid;
    return;
  }
  missingSinceMs ??= performance.now();
  if (performance.now() - missingSinceMs < RESTART_PATIENCE_MS) return;
  console.error('gateway: workerd is gone and was not restarted');
  process.exit(1);
}
