/** What an operator sees of a running host: metrics, state, drain, an orderly end, and a log that tells nothing secret. */
import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { askAgent } from '../../host-agent/local-control/client.ts';
import type { AgentStatus } from '../../host-agent/local-control/status.ts';
import { freePort } from '../fixtures/free-port.ts';
import { PATIENCE_MS } from '../patience.ts';
import { Refused, type SessionClient } from './client.ts';
import { useStack } from './stack.ts';
import { until } from './until.ts';

const metricsPort = await freePort();
const stack = useStack(() => ({
  SANDGATE_METRICS_PORT: String(metricsPort),
  // Longer than the tests wait for what does not wait for it.
  SANDGATE_DRAIN_TIMEOUT_S: String((1.5 * PATIENCE_MS) / 1_000),
}));

async function metricsText(): Promise<string> {
  return (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
}

async function agentStatus(): Promise<AgentStatus> {
  const asked = await askAgent(hostDir(), 'status');
  if (!asked.ok) throw new Error(asked.detail);
  return asked.value;
}

function hostDir(): string {
  return join(stack().stack.stateDir, 'host');
}

/** The edge hears of a host's room with its next report. */
function openOnceThereIsRoom(body: Record<string, unknown> = {}): Promise<SessionClient> {
  return until('the edge places a session', PATIENCE_MS, () => retryable(stack().open(body)));
}

/** Undefined where it is to be tried again. */
async function retryable<Value>(call: Promise<Value>): Promise<Value | undefined> {
  try {
    return await call;
  } catch (error: unknown) {
    if (error instanceof Refused && error.problem.retryable) return undefined;
    throw error;
  }
}

describe('the metrics of a host', () => {
  test('count what ran, and name nobody', async () => {
    const session = await openOnceThereIsRoom();
    await session.py('print("counted")');
    await session.sh('exit 3');
    const text = await until('the calls are counted', PATIENCE_MS, async () => {
      const now = await metricsText();
      return now.includes('status="failed"} 1') ? now : undefined;
    });
    expect(text).toMatch(/sandgate_executions_total\{tool="python",status="succeeded"\} 1/);
    expect(text).toMatch(/sandgate_executions_total\{tool="shell",status="failed"\} 1/);
    expect(text).toMatch(/^sandgate_sandboxes 1$/m);
    expect(text).toMatch(/^sandgate_edge_connected 1$/m);
    expect(text).toMatch(/^sandgate_sandbox_start_seconds_count 1$/m);
    expect(text).toMatch(/^sandgate_journal_write_seconds_count [1-9]/m);
    expect(text).not.toMatch(/\b(ses|exe|sbx|hst|lnk)[_-][A-Za-z0-9]/);
    await session.delete();
  });
});

describe('the log of a host', () => {
  test('has the execution, and nothing of arguments, output, environment or tokens', async () => {
    const words = {
      argument: 'argument-kestrel-4411',
      output: 'output-heron-5522',
      error: 'error-plover-6633',
      environment: 'environment-curlew-7744',
      stdin: 'stdin-dunlin-8855',
      file: 'file-avocet-9966',
    };
    const session = await stack().open({ env: { SECRET_OF_SESSION: words.environment } });
    const split = (word: string): string => word.split('').join("''");
    const ran = await session.sh(
      `# ${words.argument}\necho '${split(words.output)}'; echo '${split(words.error)}' >&2; echo "$SECRET_OF_SESSION"`,
    );
    expect(ran.stdout).toBe(`${words.output}\n${words.environment}\n`);
    await session.py(`raise RuntimeError('${words.error}')`);
    await session.file({ operation: 'write', path: words.file, content: words.stdin });
    // A call that ends its sandbox, whose last words might be told.
    await session.sh(`echo ${words.output} > /proc/1/fd/2; kill -9 -1; kill -9 1`, { timeoutMs: 5_000 });
    const log = await until('the end is logged', PATIENCE_MS, async () => {
      const text = await readFile(join(stack().stack.stateDir, 'logs/host-agent.log'), 'utf8');
      return text.includes(ran.execution_id) ? text : undefined;
    });
    const secrets = [...Object.values(words), stack().api.token, stack().stack.operatorToken];
    for (const word of secrets) expect(log).not.toContain(word);
    expect(log).not.toMatch(/eyJ[A-Za-z0-9_-]{20}/);
    expect(log).not.toMatch(/enr_/);
    for (const line of log.trim().split('\n')) expect(() => JSON.parse(line), line).not.toThrow();
    await session.delete();
  });
});

describe('drain', () => {
  test('refuses new sandboxes, lets its sessions leave, and is taken back', async () => {
    const session = await openOnceThereIsRoom();
    await session.sh('echo kept > note');
    expect(await askAgent(hostDir(), 'drain')).toMatchObject({ ok: true, value: { state: 'draining' } });
    await until('the edge knows', PATIENCE_MS, async () => {
      const [host] = await stack().stack.operator.hosts();
      return host !== undefined && host.capacity.sandboxes <= host.sandboxes ? true : undefined;
    });
    await expect(stack().open()).rejects.toThrow(Refused);
    await until('the session has left', PATIENCE_MS, async () =>
      (await session.describe()).state === 'suspended' ? true : undefined,
    );
    expect(await askAgent(hostDir(), 'resume')).toMatchObject({ ok: true, value: { state: 'running' } });
    const second = await openOnceThereIsRoom();
    await second.delete();
    const kept = await until('the session runs calls again', PATIENCE_MS, () =>
      retryable(session.sh('cat note')),
    );
    expect(kept.stdout).toBe('kept\n');
    await session.delete();
  });

  test('SIGTERM lets the call that runs end, and starts no other', async () => {
    const session = await openOnceThereIsRoom();
    const running = await session.detach('shell', { command: 'echo begun; sleep 10; echo ended' });
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGTERM');
    const ended = await session.ended(running.execution_id, PATIENCE_MS);
    expect(ended).toMatchObject({ status: 'succeeded', stdout: 'begun\nended\n' });
    await until('the agent is started again', PATIENCE_MS, () =>
      stack().stack.hostAgentPid() === former || stack().stack.hostAgentPid() === undefined
        ? undefined
        : true,
    );
    await stack().stack.ready();
    const next = await until('the session runs calls again', PATIENCE_MS, () =>
      retryable(session.sh('echo next')),
    );
    expect(next.stdout).toBe('next\n');
    await session.delete();
  });

  test('a second SIGTERM does not wait', async () => {
    const session = await openOnceThereIsRoom();
    const running = await session.detach(
      'shell',
      { command: 'echo begun; sleep 1000' },
      { timeoutMs: 1_000_000 },
    );
    await until('it runs', PATIENCE_MS, async () =>
      (await session.execution(running.execution_id)).stdout === 'begun\n' ? true : undefined,
    );
    const former = stack().hostAgentPid();
    process.kill(former, 'SIGTERM');
    await until('the agent is stopping', PATIENCE_MS, async () =>
      (await agentStatus()).state === 'stopping' ? true : undefined,
    );
    process.kill(former, 'SIGTERM');
    const ended = await session.ended(running.execution_id, PATIENCE_MS);
    expect(['interrupted', 'crashed', 'unknown']).toContain(ended.status);
    await until('the agent is started again', PATIENCE_MS, () =>
      stack().stack.hostAgentPid() === former || stack().stack.hostAgentPid() === undefined
        ? undefined
        : true,
    );
    await stack().stack.ready();
    await session.delete();
  });
});

describe('limits of the agent itself', () => {
  test('F30 without file descriptors it sheds new work, does not crash, and takes work again', async () => {
    const session = await openOnceThereIsRoom();
    const pid = stack().hostAgentPid();
    const limit = (soft: string): void => {
      const set = spawnSync('prlimit', ['--pid', String(pid), `--nofile=${soft}:`], { encoding: 'utf8' });
      expect(set.stderr).toBe('');
    };
    const before =
      /^Max open files\s+(\d+)/m.exec(await readFile(`/proc/${pid}/limits`, 'utf8'))?.[1] ?? '1024';
    limit('30');
    await expect(stack().open()).rejects.toThrow(Refused);
    limit(before);
    expect(stack().hostAgentPid()).toBe(pid);
    const again = await openOnceThereIsRoom();
    expect((await again.sh('echo again')).stdout).toBe('again\n');
    expect((await session.sh('echo old')).stdout).toBe('old\n');
    await again.delete();
    await session.delete();
  });
});
