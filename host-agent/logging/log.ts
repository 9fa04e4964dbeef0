/** Log lines as JSON on stdout. Only the fields named here can be written: never arguments, output or tokens. */
import { pino } from 'pino';

export interface LogFields {
  event: string;
  host_id?: string;
  request_id?: string;
  trace_id?: string;
  session_id?: string;
  execution_id?: string;
  sandbox_id?: string;
  epoch?: number;
  act?: string;
  tool?: string;
  status?: string;
  code?: string;
  detail?: string;
  reason?: string;
  link?: string;
  attempt?: number;
  delay_ms?: number;
  duration_ms?: number;
  version?: number;
  bytes?: number;
  host?: string;
  port?: number;
  rule?: string;
  bytes_sent?: number;
  bytes_received?: number;
  count?: number;
}

const FIELDS = [
  'event',
  'host_id',
  'request_id',
  'trace_id',
  'session_id',
  'execution_id',
  'sandbox_id',
  'epoch',
  'act',
  'tool',
  'status',
  'code',
  'detail',
  'reason',
  'link',
  'attempt',
  'delay_ms',
  'duration_ms',
  'version',
  'bytes',
  'host',
  'port',
  'rule',
  'bytes_sent',
  'bytes_received',
  'count',
] as const satisfies readonly (keyof LogFields)[];

const MAX_TEXT_CHARS = 1024;

export interface Log {
  info(fields: LogFields): void;
  warn(fields: LogFields): void;
  error(fields: LogFields): void;
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export function createLog(level: LogLevel): Log {
  const logger = pino({ level, base: undefined });
  return {
    info: (fields) => logger.info(allowed(fields)),
    warn: (fields) => logger.warn(allowed(fields)),
    error: (fields) => logger.error(allowed(fields)),
  };
}

/** For tests and for parts that run without a log. */
export const SILENT_LOG: Log = { info: () => {}, warn: () => {}, error: () => {} };

/** Types do not stop a wider object, so the list is applied again at run time. */
export function allowed(fields: LogFields): Record<string, string | number> {
  const kept: Record<string, string | number> = {};
  for (const name of FIELDS) {
    const value = fields[name];
    if (typeof value === 'number') kept[name] = value;
    else if (typeof value === 'string') kept[name] = value.slice(0, MAX_TEXT_CHARS);
  }
  return kept;
}
