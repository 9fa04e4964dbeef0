/** Writes that the session is in a snapshot that its host has stored: what was under way stands where the host says. */
import { logInfo } from '../../log.ts';
import { nextWakeDelayMs } from '../alarm/agenda.ts';
import type { Deadlines } from '../executions/deadlines.ts';
import type { Executions } from '../executions/executions.ts';
import { isToBeSent } from '../rows/records.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { SessionStore } from '../rows/store.ts';
import { requirementsOf, type Suspended } from './snapshot-records.ts';

interface MovedParts {
  row: SessionRow;
  store: SessionStore;
  executions: Executions;
  deadlines: Deadlines;
}

export function moveIntoSnapshot(
  { row, store, executions, deadlines }: MovedParts,
  frame: Suspended,
  { isStopped, isToWake }: { isStopped: boolean; isToWake: boolean },
): void {
  const { facts, generation, pausedAtMs, expiresAtMs, shell } = row.record;
  const nowMs = Date.now();
  const pausedMs = pausedAtMs === null ? 0 : Math.max(0, nowMs - pausedAtMs);
  logInfo('session_suspended', { session_id: facts.sessionId, bytes: frame.stored_bytes });
  for (const record of executions.open) deadlines.disarm(record);
  store.transaction(() => {
    executions.flush();
    for (const record of executions.open) {
      const carried = frame.executions.find(({ execution_id }) => execution_id === record.executionId);
      if (carried === undefined || isToBeSent(record)) continue;
      const startedAt = record.startedAt ?? new Date().toISOString();
      executions.patch(record, {
        status: record.status === 'granted' ? 'running' : record.status,
        startedAt,
        deadlineAtMs: null,
      });
    }
    row.move('suspended', {
      pausedAtMs: null,
      expiresAtMs: expiresAtMs === null ? null : expiresAtMs + pausedMs,
      pendingSnapshot: null,
      linkDownAtMs: null,
      snapshot: {
        snapshotId: frame.snapshot_id,
        manifestSha256: frame.manifest_sha256,
        sessionId: facts.sessionId,
        requirements: requirementsOf(frame),
        executions: frame.executions,
        forks: [],
        generation,
        bytes: frame.bytes,
        storedBytes: frame.stored_bytes,
        shell,
        atMs: nowMs,
        isOwn: true,
        isStopped,
        rescue: null,
        wake: isToWake ? { atMs: nowMs + nextWakeDelayMs(0), tries: 0 } : null,
      },
    });
  });
  for (const record of executions.open.slice()) {
    const isCarried = frame.executions.some(({ execution_id }) => execution_id === record.executionId);
    if (isCarried || isToBeSent(record)) continue;
    // The host had not begun it, or says nothing of it any more.
    if (record.status === 'granted') executions.sendAgain(record);
    else executions.end(record, { status: 'unknown', reason: 'not_carried' });
  }
}
