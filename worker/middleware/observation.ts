/** What is told of every request: a line of the log and a data point, where the edge is configured to. */
import type { Context } from 'hono';
import { traceIdOf } from '../../shared/trace.ts';
import type { AppEnvironment } from './app-environment.ts';

const UNROUTED = 'none';

export function observe(c: Context<AppEnvironment>): void {
  const { METRICS, REQUEST_LOG } = c.env;
  if (METRICS === undefined && REQUEST_LOG !== 'on') return;
  const operation = c.get('operation') ?? UNROUTED;
  const { status } = c.res;
  const durationMs = Date.now() - c.get('receivedMs');
  // Labels come from closed lists: no id, and no name that a caller chooses.
  METRICS?.writeDataPoint({
    indexes: [operation],
    blobs: [operation, c.req.method, String(status), c.get('refusedAs') ?? ''],
    doubles: [1, durationMs],
  });
  if (REQUEST_LOG !== 'on') return;
  const requestId = c.get('requestId');
  console.log(
    JSON.stringify({
      level: 'info',
      event: 'request',
      request_id: requestId,
      trace_id: traceIdOf(requestId),
      operation,
      method: c.req.method,
      status,
      code: c.get('refusedAs'),
      tenant: c.get('tenant'),
      duration_ms: durationMs,
    }),
  );
}
