/** Runs the Worker on workerd through Miniflare, with its Durable Objects on the disk. */
import { build, stop } from 'esbuild';
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare';
import type { Bindings } from './bindings.ts';
import { WORKER_PARTS } from './worker-parts.ts';

const WORKER_NAME = 'sandgate';

export type GatewayOptions = {
  entry: string;
  port: number;
  bindings: Bindings;
  persistDir: string;
  onRuntimeRestart: () => void;
};

export async function startGateway(options: GatewayOptions): Promise<{ url: URL; miniflare: Miniflare }> {
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      name: WORKER_NAME,
      host: '127.0.0.1',
      // Its own door is left to it: the Worker listens itself, without another Worker before each of its requests.
      port: 0,
      unsafeDirectSockets: [{ host: '127.0.0.1', port: options.port }],
      modules: true,
      script: await bundleWorker(options.entry),
      ...WORKER_PARTS,
      durableObjects: Object.fromEntries(
        Object.entries(WORKER_PARTS.durableObjects).map(([binding, className]) => [
          binding,
          { className, useSQLite: true },
        ]),
      ),
      bindings: options.bindings,
      resourcePersistencePath: options.persistDir,
      cf: false,
      telemetry: { enabled: false },
      log: new Log(LogLevel.WARN),
      unsafeHandleRuntimeRestart: options.onRuntimeRestart,
    }),
  );
  await miniflare.ready;
  return { url: await miniflare.unsafeGetDirectURL(), miniflare };
}

async function bundleWorker(entry: string): Promise<string> {
  const bundled = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    conditions: ['workerd', 'worker', 'browser'],
    mainFields: ['browser', 'module', 'main'],
    external: ['cloudflare:*', 'node:*'],
    target: 'es2024',
    logLevel: 'silent',
  });
  // esbuild keeps a process for further builds; there are none.
  await stop();
  const [output] = bundled.outputFiles;
  if (output === undefined) throw new Error(`esbuild gave no output for ${entry}`);
  return output.text;
}
