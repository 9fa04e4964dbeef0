/**
 * What this host counts for Prometheus. Counters follow the events of the log, so nothing is counted that is not also
 * told there; gauges are read when somebody asks. No label has a value that a caller can choose.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { ERRORS } from '../../shared/errors.ts';
import { TerminalStatusSchema } from '../../shared/lifecycle.ts';
import { ToolNameSchema } from '../../shared/tool.ts';
import type { Log, LogFields } from '../logging/log.ts';

const START_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20];
const EXECUTION_SECONDS = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600];
const JOURNAL_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2];
const OTHER = 'other';
/** The library's own 10 ms would wake an idle host a hundred times a second. */
const EVENT_LOOP_PRECISION_MS = 100;

const TOOLS: ReadonlySet<string> = new Set(ToolNameSchema.options);
const STATUSES: ReadonlySet<string> = new Set(TerminalStatusSchema.options);
const CODES: ReadonlySet<string> = new Set(Object.keys(ERRORS));
const LOST_REASONS: ReadonlySet<string> = new Set(['oom', 'crashed']);

/** What the gauges show; read anew for each scrape. */
export interface GaugeReadings {
  sandboxes: number;
  capacity: number;
  executions: number;
  /** Of snapshots that lie at the edge too. */
  keptSnapshotBytes: number;
  edgeConnected: boolean;
  degraded: boolean;
  draining: boolean;
  /** Made ahead of their sessions. */
  pooled: { ready: number; starting: number };
}

export interface Metrics {
  /** Counts what an event of the log says. */
  observe: (fields: LogFields) => void;
  journalWritten: (durationMs: number, bytes: number) => void;
  /** Where the gauges get their values; before that they are left out. */
  read(readings: () => GaugeReadings): void;
  /** The text that Prometheus scrapes. */
  text(): Promise<string>;
  contentType: string;
}

export interface MetricsOptions {
  agentVersion: string;
  /** Whether anybody may ask: figures of the process cost a timer, so they are not taken for nobody. */
  isServed: boolean;
}

export function createMetrics({ agentVersion, isServed }: MetricsOptions): Metrics {
  const registry = new Registry();
  if (isServed) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS });
  }
  const registers = [registry];
  const executions = new Counter({
    name: 'sandgate_executions_total',
    help: 'Executions that ended, by tool and terminal status.',
    labelNames: ['tool', 'status'],
    registers,
  });
  const durations = new Histogram({
    name: 'sandgate_execution_duration_seconds',
    help: 'From the start of an execution to its end.',
    labelNames: ['tool'],
    buckets: EXECUTION_SECONDS,
    registers,
  });
  const outputBytes = new Counter({
    name: 'sandgate_execution_output_bytes_total',
    help: 'Bytes that programs wrote to standard output and error.',
    registers,
  });
  const starts = new Histogram({
    name: 'sandgate_sandbox_start_seconds',
    help: 'From an accepted attach to a sandbox that takes calls.',
    buckets: START_SECONDS,
    registers,
  });
  const lost = new Counter({
    name: 'sandgate_sandboxes_lost_total',
    help: 'Sandboxes that ended without being asked to; oom: killed by their memory limit.',
    labelNames: ['reason'],
    registers,
  });
  const failedStarts = counter(registers, 'sandgate_sandbox_start_failures_total', 'Sandboxes not started.');
  const refused = new Counter({
    name: 'sandgate_grants_refused_total',
    help: 'Grants that this host refused, by code.',
    labelNames: ['code'],
    registers,
  });
  const linksUp = new Counter({
    name: 'sandgate_link_connections_total',
    help: 'Links to the edge that were established; all but the first of a link are reconnects.',
    labelNames: ['link'],
    registers,
  });
  const linksDown = new Counter({
    name: 'sandgate_link_losses_total',
    help: 'Links and attempts to link that ended, orderly ends of session links included.',
    labelNames: ['link'],
    registers,
  });
  const watchdog = new Counter({
    name: 'sandgate_watchdog_actions_total',
    help: 'What the watchdog had to end: overdue executions and strays that no session owns.',
    labelNames: ['kind'],
    registers,
  });
  const journalSeconds = new Histogram({
    name: 'sandgate_journal_write_seconds',
    help: 'Writing and syncing one group of journal records.',
    buckets: JOURNAL_SECONDS,
    registers,
  });
  const journalBytes = counter(registers, 'sandgate_journal_written_bytes_total', 'Bytes journalled.');
  new Gauge({
    name: 'sandgate_build_info',
    help: 'Always 1; the labels say what runs.',
    labelNames: ['version'],
    registers,
  }).set({ version: agentVersion }, 1);

  return {
    contentType: registry.contentType,
    text: () => registry.metrics(),
    journalWritten(durationMs, bytes) {
      journalSeconds.observe(durationMs / 1000);
      journalBytes.inc(bytes);
    },
    read: (readings) => addGauges(registers, readings),
    observe(fields) {
      switch (fields.event) {
        case 'execution_finished': {
          const tool = known(TOOLS, fields.tool);
          executions.inc({ tool, status: known(STATUSES, fields.status) });
          durations.observe({ tool }, (fields.duration_ms ?? 0) / 1000);
          outputBytes.inc(fields.bytes ?? 0);
          return;
        }
        case 'execution_unknown':
          executions.inc({ tool: known(TOOLS, fields.tool), status: 'unknown' });
          return;
        case 'sandbox_started':
          starts.observe((fields.duration_ms ?? 0) / 1000);
          return;
        case 'sandbox_not_started':
          failedStarts.inc();
          return;
        case 'sandbox_lost':
          lost.inc({ reason: known(LOST_REASONS, fields.reason) });
          return;
        case 'grant_refused':
          refused.inc({ code: known(CODES, fields.code) });
          return;
        case 'link_up':
          linksUp.inc({ link: linkKind(fields.link) });
          return;
        case 'link_down':
          linksDown.inc({ link: linkKind(fields.link) });
          return;
        case 'execution_overdue':
          watchdog.inc({ kind: 'overdue_execution' });
          return;
        case 'stray_removed':
          watchdog.inc({ kind: 'stray' });
          return;
      }
    },
  };
}

/** A log that also counts. */
export function countedLog(log: Log, metrics: Metrics): Log {
  const counted = (fields: LogFields): LogFields => {
    metrics.observe(fields);
    return fields;
  };
  return {
    info: (fields) => log.info(counted(fields)),
    warn: (fields) => log.warn(counted(fields)),
    error: (fields) => log.error(counted(fields)),
  };
}

function counter(registers: Registry[], name: string, help: string): Counter {
  return new Counter({ name, help, registers });
}

function addGauges(registers: Registry[], readings: () => GaugeReadings): void {
  const gauge = (name: string, help: string, value: (now: GaugeReadings) => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value(readings()));
      },
    });
  };
  gauge('sandgate_sandboxes', 'Sandboxes of sessions, those that start included.', (now) => now.sandboxes);
  gauge('sandgate_pool_ready', 'Sandboxes that wait for a session.', (now) => now.pooled.ready);
  gauge('sandgate_pool_starting', 'Sandboxes on their way into the pool.', (now) => now.pooled.starting);
  gauge('sandgate_sandbox_capacity', 'Sandboxes that may live at once.', (now) => now.capacity);
  gauge('sandgate_executions_running', 'Executions that run.', (now) => now.executions);
  gauge(
    'sandgate_kept_snapshot_bytes',
    'Sealed snapshots on the disk, for sessions that come back.',
    (now) => now.keptSnapshotBytes,
  );
  gauge('sandgate_edge_connected', '1 while the control link is up.', (now) => Number(now.edgeConnected));
  gauge('sandgate_journal_degraded', '1 while the disk refuses the journal.', (now) => Number(now.degraded));
  gauge('sandgate_draining', '1 while no new sandbox is taken.', (now) => Number(now.draining));
}

/** A value outside of the list would make a series of its own. */
function known(values: ReadonlySet<string>, value: string | undefined): string {
  return value !== undefined && values.has(value) ? value : OTHER;
}

function linkKind(name: string | undefined): string {
  return name === 'control' ? 'control' : 'session';
}
