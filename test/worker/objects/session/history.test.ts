import { runInDurableObject } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { MAX_EXECUTION_HISTORY } from '../../../../shared/limits.ts';
import { History } from '../../../../worker/objects/session/executions/history.ts';
import type { ExecutionRecord } from '../../../../worker/objects/session/rows/records.ts';
import { SessionStore } from '../../../../worker/objects/session/rows/store.ts';

const MIB = 1024 * 1024;

function ended(n: number, contentBytes = 0): ExecutionRecord {
  return {
    n,
    executionId: `exe_${String(n).padStart(22, '0')}`,
    tool: 'shell',
    toolVersion: '1',
    calledAs: null,
    constraints: null,
    parentId: null,
    arguments: null,
    argsSha256: '0'.repeat(64),
    timeoutMs: 1,
    relay: 'bounded',
    stdin: false,
    encoding: 'utf-8',
    status: 'succeeded',
    idempotencyKey: null,
    fingerprint: null,
    requestId: 'req',
    epoch: 1,
    grants: [],
    createdAtMs: 0,
    sentAtMs: null,
    deadlineAtMs: null,
    startedAt: null,
    finishedAt: null,
    durationMs: null,
    exitCode: 0,
    signal: null,
    error: null,
    reason: null,
    stateLost: false,
    stdoutBytes: contentBytes,
    stderrBytes: 0,
    admitMs: 0,
    placeMs: 0,
    interruptRequested: false,
    input: null,
    truncated: false,
    contentBytes,
    stored: null,
    receiptSeq: null,
    rollback: false,
    rolledBack: false,
    expired: false,
  };
}

async function withStore(name: string, work: (store: SessionStore) => void): Promise<void> {
  const stub = env.SESSION.get(env.SESSION.idFromName(name));
  await runInDurableObject(stub, (_object, state) => work(new SessionStore(state)));
}

describe('the history of a session', () => {
  test('keeps its newest executions, up to its limit', async () => {
    await withStore('acme:rows', (store) => {
      const history = new History(store);
      const last = MAX_EXECUTION_HISTORY + 200;
      for (let n = 1; n <= last; n += 1) {
        store.insertExecution(ended(n));
        history.ended(ended(n));
      }
      expect(store.executionCount()).toBeLessThanOrEqual(MAX_EXECUTION_HISTORY + 64);
      expect(store.executionsBefore(last + 1, 1)[0]?.n).toBe(last);
      expect(store.execution(ended(1).executionId)).toBeUndefined();
    });
  });

  test('keeps what an idempotency key may still ask for, however many calls came after it', async () => {
    await withStore('acme:keys', (store) => {
      const history = new History(store);
      const keyed = { ...ended(1), idempotencyKey: 'k1', createdAtMs: Date.now() };
      const stale = { ...ended(2), idempotencyKey: 'k2', createdAtMs: Date.now() - 86_400_001 };
      for (const record of [keyed, stale]) store.insertExecution(record);
      for (let n = 3; n <= MAX_EXECUTION_HISTORY + 200; n += 1) {
        store.insertExecution(ended(n));
        history.ended(ended(n));
      }
      expect(store.execution(keyed.executionId)).toMatchObject({ idempotencyKey: 'k1' });
      expect(store.execution(stale.executionId)).toBeUndefined();
    });
  });

  test('lets the output of the oldest go when all of it is too much, and says so', async () => {
    await withStore('acme:content', (store) => {
      const history = new History(store);
      for (let n = 1; n <= 70; n += 1) {
        store.insertExecution(ended(n, 4 * MIB));
        store.output.insert(n, 0, { stream: 'stdout', offset: 0, bytes: new Uint8Array(10) });
        history.ended(ended(n, 4 * MIB));
      }
      expect(store.contentBytes()).toBeLessThanOrEqual(256 * MIB);
      expect(store.execution(ended(1).executionId)).toMatchObject({ contentBytes: 0, truncated: true });
      expect(store.output.all(1)).toEqual([]);
      expect(store.execution(ended(70).executionId)).toMatchObject({ truncated: false });
      expect(store.output.all(70)).toHaveLength(1);
    });
  });
});
