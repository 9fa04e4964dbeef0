import { describe, expect, test } from 'vitest';
import { HOST_DEAD_MS } from '../../../../../shared/limits.ts';
import { lastMoment, nextDestroyTry, nextLook } from '../../../../../worker/objects/session/alarm/agenda.ts';
import type { ExecutionRecord, SessionRecord } from '../../../../../worker/objects/session/rows/records.ts';

const NOW = 1_000_000;

function session(facts: Partial<SessionRecord> = {}): SessionRecord {
  return {
    facts: {
      sessionId: `ses_${'a'.repeat(38)}`,
      tenant: 'acme',
      subject: 'alice',
      image: 'python',
      imageDigest: `sha256:${'1'.repeat(64)}`,
      pool: 'default',
      hostId: `hst_${'a'.repeat(22)}`,
      limits: { cpus: 1, memory_bytes: 1, processes: 1, workspace_bytes: 1, tmp_bytes: 1 },
      environment: {},
      network: null,
      metadata: {},
      labels: {},
      suspendAfterIdleMs: null,
      fromSnapshot: null,
      onHostLoss: 'fail',
      rollback: 'never',
      idleTimeoutMs: 600_000,
      createdAtMs: NOW,
      ephemeral: false,
    },
    state: 'running',
    errorCode: null,
    errorDetail: null,
    epoch: 1,
    grantSeq: 1,
    sandbox: 'ready',
    sandboxId: 'x',
    attachAtMs: null,
    hostKeyX: null,
    stateLost: false,
    linkDownAtMs: null,
    pausedAtMs: null,
    snapshot: null,
    pendingSnapshot: null,
    generation: 0,
    streamId: null,
    lastSeq: 0,
    chainSeq: 0,
    chainSha256: '',
    lastActivityAtMs: NOW,
    expiresAtMs: null,
    destroyAtMs: null,
    destroyTries: 0,
    purgeAtMs: null,
    retentionAtMs: null,
    shell: null,
    ...facts,
  };
}

function execution(status: ExecutionRecord['status'], deadlineAtMs: number | null): ExecutionRecord {
  return { status, deadlineAtMs } as Partial<ExecutionRecord> as ExecutionRecord;
}

describe('the next look of a session', () => {
  test.each<[string, Partial<SessionRecord>, ExecutionRecord[], number | null]>([
    ['idle', {}, [], NOW + 600_000],
    ['busy', {}, [execution('running', NOW + 5_000)], NOW + 6_000],
    ['busy past its deadline', {}, [execution('running', NOW - 1)], lastMoment(NOW - 1)],
    ['busy with a queue', {}, [execution('running', NOW + 5_000), execution('queued', null)], NOW + 6_000],
    ['waiting for a sandbox', {}, [execution('queued', null)], NOW + 15_000],
    ['without a link', { linkDownAtMs: NOW }, [], NOW + HOST_DEAD_MS],
    ['being made', { state: 'creating', sandbox: 'attaching', attachAtMs: NOW }, [], NOW + 31_000],
    ['failed', { state: 'error' }, [], null],
    ['ending', { state: 'destroying', destroyAtMs: NOW + 7 }, [], NOW + 7],
    ['destroyed', { state: 'destroyed', sandbox: 'destroyed', purgeAtMs: NOW + 9 }, [], NOW + 9],
    ['purged', { state: 'destroyed', sandbox: 'destroyed' }, [], null],
  ])('that is %s is in time', (_name, facts, open, expected) => {
    expect(nextLook(session(facts), open, NOW)).toBe(expected);
  });

  test('is within a minute of every deadline', () => {
    expect(lastMoment(NOW + 4_000)).toBeLessThan(NOW + 60_000);
  });
});

describe('the tries to have a sandbox destroyed', () => {
  test('grow apart, never above a minute, and end', () => {
    const waits: number[] = [];
    for (let tries = 0; ; tries += 1) {
      const next = nextDestroyTry(tries, NOW);
      if (next === null) break;
      waits.push(next - NOW);
    }
    expect(waits.slice(0, 7)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]);
    expect(Math.max(...waits)).toBe(60_000);
    expect(waits.reduce((sum, wait) => sum + wait, 0)).toBeGreaterThan(600_000);
  });
});

describe('a session that suspends itself when idle', () => {
  const record = session();
  const suspending = { ...record, facts: { ...record.facts, suspendAfterIdleMs: 30_000 } };

  test('does so while its programs wait for their tools, and not while anything runs', () => {
    expect(nextLook(suspending, [execution('waiting', null)], NOW)).toBe(NOW + 30_000);
    const both = [execution('waiting', null), execution('running', NOW + 600_000)];
    expect(nextLook(suspending, both, NOW)).toBeGreaterThan(NOW + 30_000);
    expect(nextLook(record, [execution('waiting', null)], NOW)).toBeNull();
  });
});
