/** What is told of every request: a line of the log and a data point, where the edge is configured to. */
import type { Context } from 'hono';
import { traceIdOf } from '../../shared/trace.ts';
import type { Env } from '../env.ts';
import type { AppEnvironment } from './app-environment.ts';

export const UNROUTED = 'none';

export interface RequestFacts {
  operation: string;
  method: string;
  status: number;
  /** Of the refusal. */
  code: string | undefined;
  requestId: string;
  tenant: string | undefined;
  receivedMs: number;
}

export function observe(c: Context<AppEnvironment>): void {
  tellRequest(c.env, {
    operation: c.get('operation') ?? UNROUTED,
    method: c.req.method,
    status: c.res.status,
    code: c.get('refusedAs'),
    requestId: c.get('requestId'),
    tenant: c.get('tenant'),
    receivedMs: c.get('receivedMs'),
  });
}

export function tellRequest(
  { METRICS, REQUEST_LOG }: Env,
  { operation, method, status, code, requestId, tenant, receivedMs }: RequestFacts,
): void {
  if (METRICS === undefined && REQUEST_LOG !== 'on') return;
  const durationMs = Date.now() - receivedMs;
  // Labels come from closed lists: no id, and no name that a caller chooses.
  METRICS?.writeDataPoint({
    indexes: [operation],
    blobs: [operation, method, String(status), code ?? ''],
    doubles: [1, durationMs],
  });
  if (REQUEST_LOG !== 'on') return;
  console.log(
    JSON.stringify({
      level: 'info',
      event: 'request',
      request_id: requestId,
      trace_id: traceIdOf(requestId),
      operation,
      method,
      status,
      code,
      tenant,
      duration_ms: durationMs,
    }),
  );
}
