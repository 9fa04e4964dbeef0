/** Runs the Worker on workerd through Miniflare, with its Durable Objects on the disk. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare';
import type { Bindings } from './bindings.ts';
import { bundleWorkers } from './bundle-workers.ts';
import { WORKER_PARTS } from './worker-parts.ts';

const WORKER_NAME = 'sandgate';
const BUCKET_NAME = 'sandgate-snapshots';
const BUCKET_ENTRY = fileURLToPath(new URL('./folder-bucket.worker.ts', import.meta.url));

export type GatewayOptions = {
  entry: string;
  port: number;
  bindings: Bindings;
  persistDir: string;
  onRuntimeRestart: () => void;
};

export async function startGateway(options: GatewayOptions): Promise<{ url: URL; miniflare: Miniflare }> {
  const snapshotsDir = join(options.persistDir, 'snapshots');
  await mkdir(snapshotsDir, { recursive: true, mode: 0o700 });
  const [script, bucketScript] = await bundleWorkers([options.entry, BUCKET_ENTRY]);
  const { compatibilityDate, durableObjects, r2Buckets, ...parts } = WORKER_PARTS;
  const { SNAPSHOTS: _, ...simulatedBuckets } = r2Buckets;
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      host: '127.0.0.1',
      // Its own door is left to it: the Worker listens itself, without another Worker before each of its requests.
      port: 0,
      resourcePersistencePath: options.persistDir,
      cf: false,
      telemetry: { enabled: false },
      log: new Log(LogLevel.WARN),
      unsafeHandleRuntimeRestart: options.onRuntimeRestart,
      workers: [
        {
          name: WORKER_NAME,
          unsafeDirectSockets: [{ host: '127.0.0.1', port: options.port }],
          modules: true,
          script,
          compatibilityDate,
          ...parts,
          durableObjects: Object.fromEntries(
            Object.entries(durableObjects).map(([binding, className]) => [
              binding,
              { className, useSQLite: true },
            ]),
          ),
          r2Buckets: simulatedBuckets,
          serviceBindings: { SNAPSHOTS: { name: BUCKET_NAME, entrypoint: 'FolderBucket' } },
          bindings: options.bindings,
        },
        {
          name: BUCKET_NAME,
          modules: true,
          script: bucketScript,
          compatibilityDate,
          serviceBindings: { FOLDER: { disk: { path: snapshotsDir, writable: true } } },
        },
      ],
    }),
  );
  await miniflare.ready;
  return { url: await miniflare.unsafeGetDirectURL(), miniflare };
}
