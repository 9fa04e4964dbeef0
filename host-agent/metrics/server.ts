/** Serves the metrics on loopback, and nowhere else. */
import { createServer, type Server } from 'node:http';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Metrics } from './metrics.ts';

const LOOPBACK = '127.0.0.1';
const MAX_CONNECTIONS = 16;
const REQUEST_TIMEOUT_MS = 5_000;
/** A page of another name that resolves to loopback must not read them through a browser of this machine. */
const LOCAL_HOST = /^(127\.0\.0\.1|localhost)(:\d+)?$/;

export interface MetricsServer {
  port: number;
  close(): Promise<void>;
}

export async function serveMetrics(metrics: Metrics, port: number): Promise<Outcome<MetricsServer>> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    request.resume();
    if (!LOCAL_HOST.test(request.headers.host ?? '')) return void response.writeHead(403).end();
    if (request.method !== 'GET' || request.url !== '/metrics') return void response.writeHead(404).end();
    metrics.text().then(
      (text) => response.writeHead(200, { 'content-type': metrics.contentType }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  server.maxConnections = MAX_CONNECTIONS;
  const listening = await listen(server, port);
  if (!listening.ok) return listening;
  server.unref();
  const address = server.address();
  return success({
    port: typeof address === 'object' && address !== null ? address.port : port,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

function listen(server: Server, port: number): Promise<Outcome<null>> {
  return new Promise((resolve) => {
    server.once('error', (error) =>
      resolve(failure('internal', `metrics on ${LOOPBACK}:${port}: ${error.message}`)),
    );
    server.listen(port, LOOPBACK, () => resolve(success(null)));
  });
}
