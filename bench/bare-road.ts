/** The least that a call takes on this workerd, whatever is made of it: two writes, three signatures, one word with a host. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare';
import { Client, WebSocket } from 'undici';
import { bundleWorkers } from '../scripts/development/bundle-workers.ts';
import { requireFreePort } from '../scripts/development/port.ts';
import { WORKER_PARTS } from '../scripts/development/worker-parts.ts';

const ENTRY = fileURLToPath(new URL('./bare-road.worker.ts', import.meta.url));

export interface BareRoad {
  call(body: object): Promise<void>;
  stop(): Promise<void>;
}

export async function startBareRoad(): Promise<BareRoad> {
  const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-bare-road-'));
  const [script] = await bundleWorkers([ENTRY]);
  const port = await requireFreePort(0);
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      host: '127.0.0.1',
      port: 0,
      resourcePersistencePath: stateDir,
      cf: false,
      telemetry: { enabled: false },
      log: new Log(LogLevel.WARN),
      workers: [
        {
          name: 'bare-road',
          unsafeDirectSockets: [{ host: '127.0.0.1', port }],
          modules: true,
          script,
          compatibilityDate: WORKER_PARTS.compatibilityDate,
          durableObjects: { ROAD: { className: 'Road', useSQLite: true } },
        },
      ],
    }),
  );
  await miniflare.ready;
  const host = await connectHost(`ws://127.0.0.1:${port}/link`);
  const client = new Client(`http://127.0.0.1:${port}`);
  return {
    call: (body) => post(client, body),
    stop: async () => {
      await client.close();
      host.close();
      await miniflare.dispose();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

/** Answers at once, with what it got. */
async function connectHost(url: string): Promise<WebSocket> {
  const host = new WebSocket(url);
  host.addEventListener('message', ({ data }) => host.send(data));
  await new Promise<void>((resolve, reject) => {
    host.addEventListener('open', () => resolve());
    host.addEventListener('error', ({ message }) =>
      reject(new Error(`the bare road has no host: ${message}`)),
    );
  });
  return host;
}

async function post(client: Client, body: object): Promise<void> {
  const { statusCode, body: answer } = await client.request({
    method: 'POST',
    path: '/call',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  if (statusCode !== 200) throw new Error(`the bare road answered ${statusCode}: ${text}`);
}
