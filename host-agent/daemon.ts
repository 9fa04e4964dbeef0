/** The agent as a service: with its log, metrics, watchdogs and local control, from start to the end of its drain. */
import { type Outcome, success } from '../shared/errors.ts';
import type { Configuration } from './configuration.ts';
import { type Agent, startAgent } from './edge/agent.ts';
import { type LocalControlServer, serveLocalControl } from './local-control/server.ts';
import type { AgentStatus } from './local-control/status.ts';
import { createLog } from './logging/log.ts';
import { countedLog, createMetrics, type GaugeReadings } from './metrics/metrics.ts';
import { serveMetrics } from './metrics/server.ts';
import { RunscSandboxes } from './sandbox/runsc-sandboxes.ts';
import { watchLoop } from './watchdog/loop-stall.ts';
import { serviceManager } from './watchdog/service-manager.ts';
import { type WatchedSandboxes, watchSandboxes } from './watchdog/watched-sandboxes.ts';

const SWEEP_INTERVAL_MS = 30_000;
const NO_POOL = { ready: 0, starting: 0 };

export interface DaemonSignals {
  stopping: AbortSignal;
  /** Ends the wait for executions that run. */
  hurrying: AbortSignal;
  /** Aborted where the stop is for another agent, which goes on with the sandboxes at rest. */
  succeeded: AbortSignal;
}

/** Settles when the agent has stopped, or could not start. */
export async function runDaemon(
  configuration: Configuration,
  { stopping, hurrying, succeeded }: DaemonSignals,
): Promise<Outcome<null>> {
  const { hostDir, cgroupParent, logLevel, metricsPort, drainTimeoutMs, ...settings } = configuration;
  const metrics = createMetrics({ ...settings, isServed: metricsPort !== undefined });
  const log = countedLog(createLog(logLevel), metrics);
  const service = serviceManager(process.env);
  const parts: DaemonParts = {
    configuration,
    agent: undefined,
    sandboxes: undefined,
    pooled: () => NO_POOL,
    stopping,
  };
  if (metricsPort !== undefined) {
    const served = await serveMetrics(metrics, metricsPort);
    if (!served.ok) return served;
    metrics.read(() => readGauges(parts));
  }
  const loop = watchLoop();
  let control: LocalControlServer | undefined;
  let sweeping: NodeJS.Timeout | undefined;
  const agent = await startAgent({
    ...settings,
    hostDir,
    log,
    signal: stopping,
    onJournalWrite: metrics.journalWritten,
    openSandboxes: async () => {
      const opened = await RunscSandboxes.open({ ...settings, stateDir: hostDir, cgroupParent, log });
      if (!opened.ok) return opened;
      const served = await serveLocalControl(hostDir, localControl(parts));
      if (!served.ok) return served;
      control = served.value;
      sweeping = setInterval(() => {
        opened.value.removeStrays().catch((error: unknown) => {
          log.error({ event: 'sweep_failed', detail: error instanceof Error ? error.message : 'unknown' });
        });
      }, SWEEP_INTERVAL_MS).unref();
      parts.pooled = () => opened.value.pooled;
      parts.sandboxes = watchSandboxes(opened.value, { log });
      // Ready to be asked and to be stopped; an edge that cannot be reached is no reason to start anew.
      void service.ready();
      return success(parts.sandboxes);
    },
  });
  if (agent.ok) {
    parts.agent = agent.value;
    await aborted(stopping);
    log.info({ event: 'stopping', count: parts.sandboxes?.executions ?? 0 });
    void service.stopping();
    clearInterval(sweeping);
    await agent.value.stop({ patienceMs: drainTimeoutMs, hurrying, isSucceeded: succeeded.aborted });
  }
  await control?.close();
  loop.stop();
  return agent.ok ? success(null) : agent;
}

interface DaemonParts {
  configuration: Configuration;
  agent: Agent | undefined;
  sandboxes: WatchedSandboxes | undefined;
  pooled: () => GaugeReadings['pooled'];
  stopping: AbortSignal;
}

function readGauges({ agent, sandboxes, pooled, stopping }: DaemonParts): GaugeReadings {
  return {
    sandboxes: agent?.sandboxes ?? 0,
    capacity: sandboxes?.facts.capacity ?? 0,
    executions: sandboxes?.executions ?? 0,
    keptSnapshotBytes: agent?.keptSnapshotBytes ?? 0,
    edgeConnected: agent?.isConnected ?? false,
    degraded: agent?.isDegraded ?? false,
    draining: stopping.aborted || (agent?.isDraining ?? false),
    pooled: pooled(),
  };
}

function localControl(parts: DaemonParts): Parameters<typeof serveLocalControl>[1] {
  return {
    status: () => statusOf(parts),
    setDraining(draining) {
      if (parts.agent !== undefined) parts.agent.isDraining = draining;
    },
  };
}

function statusOf(parts: DaemonParts): AgentStatus {
  const { configuration, agent, sandboxes } = parts;
  const { edgeConnected, ...readings } = readGauges(parts);
  const inUse = agent?.imagesInUse ?? [];
  return {
    pid: process.pid,
    agent_version: configuration.agentVersion,
    uptime_s: Math.floor(process.uptime()),
    state: stateOf(parts),
    host_id: agent?.hostId ?? null,
    edge_url: configuration.edgeUrl,
    edge_connected: edgeConnected,
    ...(agent?.edgeRefusal === undefined ? {} : { edge_refusal: agent.edgeRefusal }),
    clock_ahead_ms: agent?.clockAheadMs ?? null,
    degraded: readings.degraded,
    sandboxes: readings.sandboxes,
    capacity: readings.capacity,
    executions: readings.executions,
    runsc_version: sandboxes?.facts.runscVersion ?? null,
    images: (sandboxes?.facts.images ?? []).map(({ name, digest }) => ({
      name,
      digest,
      sandboxes: inUse.filter((used) => used === digest).length,
    })),
  };
}

function stateOf({ agent, stopping }: DaemonParts): AgentStatus['state'] {
  if (stopping.aborted) return 'stopping';
  if (agent === undefined) return 'starting';
  return agent.isDraining ? 'draining' : 'running';
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
