import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { describe, expect, onTestFinished, test } from 'vitest';
import { SILENT_LOG } from '../../../host-agent/logging/log.ts';
import { countedLog, createMetrics, type Metrics } from '../../../host-agent/metrics/metrics.ts';
import { type MetricsServer, serveMetrics } from '../../../host-agent/metrics/server.ts';

const metrics = (): Metrics => createMetrics({ agentVersion: '1.2.3', isServed: true });

describe('metrics', () => {
  test('follow the events of the log', async () => {
    const counted = metrics();
    const log = countedLog(SILENT_LOG, counted);
    const ended = { event: 'execution_finished', execution_id: 'exe_1', tool: 'python', bytes: 7 };
    log.info({ ...ended, status: 'succeeded', duration_ms: 2_000 });
    log.info({ ...ended, status: 'oom', duration_ms: 10 });
    log.warn({ event: 'grant_refused', session_id: 'ses_1', code: 'grant_expired' });
    log.warn({ event: 'sandbox_lost', sandbox_id: 'sbx-1', reason: 'oom' });
    log.info({ event: 'link_up', link: 'control' });
    log.info({ event: 'sandbox_started', sandbox_id: 'sbx-1', duration_ms: 300 });
    counted.journalWritten(4, 512);
    const text = await counted.text();
    expect(text).toContain('sandgate_executions_total{tool="python",status="succeeded"} 1');
    expect(text).toContain('sandgate_executions_total{tool="python",status="oom"} 1');
    expect(text).toContain('sandgate_execution_duration_seconds_sum{tool="python"} 2.01');
    expect(text).toContain('sandgate_execution_output_bytes_total 14');
    expect(text).toContain('sandgate_grants_refused_total{code="grant_expired"} 1');
    expect(text).toContain('sandgate_sandboxes_lost_total{reason="oom"} 1');
    expect(text).toContain('sandgate_link_connections_total{link="control"} 1');
    expect(text).toContain('sandgate_sandbox_start_seconds_count 1');
    expect(text).toContain('sandgate_journal_write_seconds_sum 0.004');
    expect(text).toContain('sandgate_journal_written_bytes_total 512');
    expect(text).toContain('sandgate_build_info{version="1.2.3"} 1');
  });

  test('have no label that grows with what comes in, and no id', async () => {
    const counted = metrics();
    for (let index = 0; index < 500; index += 1) {
      counted.observe({ event: 'execution_finished', tool: `tool-${index}`, status: `status-${index}` });
      counted.observe({ event: 'grant_refused', code: `code-${index}` });
      counted.observe({ event: 'link_up', link: `session ses_${index}` });
      counted.observe({ event: `event-${index}` });
    }
    const text = await counted.text();
    expect(text).toContain('sandgate_executions_total{tool="other",status="other"} 500');
    expect(text).toContain('sandgate_link_connections_total{link="session"} 500');
    expect(text).not.toMatch(/(tool|status|code|ses|event)[-_]\d/);
  });

  test('show gauges as they are when asked', async () => {
    const counted = metrics();
    const now = {
      sandboxes: 1,
      capacity: 8,
      executions: 0,
      edgeConnected: true,
      degraded: false,
      draining: false,
      pooled: { ready: 2, starting: 1 },
      keptSnapshotBytes: 4096,
    };
    counted.read(() => now);
    expect(await counted.text()).toContain('sandgate_sandboxes 1');
    now.sandboxes = 2;
    const text = await counted.text();
    expect(text).toContain('sandgate_sandboxes 2');
    expect(text).toContain('sandgate_edge_connected 1');
  });
});

async function serve(): Promise<MetricsServer> {
  const served = await serveMetrics(metrics(), 0);
  if (!served.ok) throw new Error(served.detail);
  onTestFinished(() => served.value.close());
  return served.value;
}

/** `fetch` does not let a caller choose the Host header. */
function statusFor(
  port: number,
  headers: Record<string, string>,
  path = '/metrics',
): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    httpRequest({ host: '127.0.0.1', port, path, headers }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .once('error', reject)
      .end();
  });
}

describe('the metrics server', () => {
  test('answers on loopback, for its own name only', async () => {
    const { port } = await serve();
    expect(await statusFor(port, { host: `127.0.0.1:${port}` })).toBe(200);
    expect(await statusFor(port, { host: `localhost:${port}` })).toBe(200);
    expect(await statusFor(port, { host: 'rebound.example' })).toBe(403);
    expect(await statusFor(port, { host: 'localhost' }, '/')).toBe(404);
  });

  const outside = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4');
  test.skipIf(outside === undefined)('is not there on any other address of the machine', async () => {
    const { port } = await serve();
    const refused = await new Promise<boolean>((resolve) => {
      const socket = connect({ host: outside?.address ?? '', port });
      socket.once('connect', () => resolve(false));
      socket.once('error', () => resolve(true));
    });
    expect(refused).toBe(true);
  });

  test('says which port it cannot have', async () => {
    const { port } = await serve();
    const second = await serveMetrics(metrics(), port);
    expect(second).toMatchObject({ ok: false, detail: expect.stringContaining(`127.0.0.1:${port}`) });
  });
});
