/** Tells systemd that this service is ready, alive or stopping. Without systemd it does nothing. */
import * as z from 'zod';
import { run } from '../process/run.ts';

/** Node has no datagram sockets of the Unix kind, which is what systemd listens on; systemd brings this program. */
const NOTIFY_PROGRAM = '/usr/bin/systemd-notify';
const NOTIFY_TIMEOUT_MS = 5_000;
const MAX_OUTPUT_BYTES = 1024;

const EnvironmentSchema = z.object({
  NOTIFY_SOCKET: z.string().min(1),
  WATCHDOG_USEC: z.coerce.number().int().min(1).optional(),
});

export interface ServiceManager {
  ready(): Promise<void>;
  stopping(): Promise<void>;
}

export function serviceManager(environment: NodeJS.ProcessEnv): ServiceManager {
  const parsed = EnvironmentSchema.safeParse(environment);
  if (!parsed.success) return { ready: async () => {}, stopping: async () => {} };
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: watchdogUs } = parsed.data;
  const notify = async (state: string): Promise<void> => {
    await run(
      { file: NOTIFY_PROGRAM, argv: ['--no-block', state], environment: { NOTIFY_SOCKET: socket } },
      { timeoutMs: NOTIFY_TIMEOUT_MS, maxOutputBytes: MAX_OUTPUT_BYTES },
    );
  };
  return {
    async ready() {
      await notify('READY=1');
      // From the event loop itself: one that stands still gives no sign, and systemd starts the service anew.
      if (watchdogUs !== undefined) {
        setInterval(() => void notify('WATCHDOG=1'), Math.max(1, watchdogUs / 1000 / 3)).unref();
      }
    },
    stopping: () => notify('STOPPING=1'),
  };
}
