/** What gVisor and the supervisor can do by themselves. */
import { startPythonKernel } from '../host-agent/guest-link/python-kernel.ts';
import { BASE_ENVIRONMENT, WORKSPACE } from '../host-agent/sandbox/spec.ts';
import type { Installation } from '../host-agent/setup/setup.ts';
import { startRawSandbox } from '../test/fixtures/raw-sandbox.ts';
import { runscExec } from './runsc-exec.ts';

const READY_TIMEOUT_MS = 20_000;
const environment = Object.entries(BASE_ENVIRONMENT).map(([name, value]) => `${name}=${value}`);

export interface RawOperations {
  /** One cell as frames to the kernel and back. */
  cell: (code: string) => Promise<void>;
  /** Runs a program and counts the bytes of its stdout, as fast as they come. */
  count: (argv: string[]) => Promise<number>;
  /** A program in a sandbox of its own, by `runsc exec`. */
  exec: (argv: string[]) => Promise<void>;
  stop: () => Promise<void>;
}

export async function startRawOperations(installation: Installation): Promise<RawOperations> {
  const { link, stop } = await startRawSandbox(installation);
  // In the first one it would leave work behind that the next frame waits for.
  const peer = await startRawSandbox(installation);
  const place = { cwd: WORKSPACE, environment };
  const kernel = await startPythonKernel(link, { ...place, readyTimeoutMs: READY_TIMEOUT_MS });
  if (!kernel.ok) throw new Error(kernel.failure.message);
  return {
    async stop() {
      await stop();
      await peer.stop();
    },
    exec: (argv) => runscExec(peer.target, argv),
    async cell(code) {
      const outcome = await kernel.value.execute({ code, onOutput: () => {} });
      if (!outcome.ok || outcome.value.status !== 'succeeded') throw new Error('the raw cell failed');
    },
    async count(argv) {
      let bytes = 0;
      const onOutput = (_stream: string, chunk: Uint8Array): void => {
        bytes += chunk.length;
      };
      const channel = await link.spawn({ ...place, argv, onOutput });
      if (!channel.ok) throw new Error(channel.failure.message);
      await channel.value.exited;
      await channel.value.release(READY_TIMEOUT_MS);
      return bytes;
    },
  };
}
