/** When the session has to look at itself again. Pure: what is known goes in, the next moment comes out. */
import { ATTACH_TIMEOUT_MS, HOST_DEAD_MS } from '../../../../shared/limits.ts';
import { RESTORE_TIMEOUT_MS, SUSPEND_TIMEOUT_MS } from '../../../../shared/snapshot.ts';
import { SUSPENDED_LIVE_MS } from '../retention/retention.ts';
import { type ExecutionRecord, isToBeSent, type SessionRecord } from '../rows/records.ts';

const QUEUE_LOOK_MS = 15_000;
const OVERTIME_LOOK_MS = 5_000;
/** Calls wait for what becomes of the session. */
const UNSURE_LOOK_MS = 2_000;
/** A host gives up by itself; after this one that says nothing is taken to have done so. */
export const SUSPEND_PATIENCE_MS = SUSPEND_TIMEOUT_MS + 30_000;
/** Behind the timer that serves the same moment while the object is in memory. */
const BACKSTOP_MS = 1_000;

/**
 * With the link down the end of an execution may be on its way: it stays open this much longer, though a caller that
 * waits is answered at the deadline. Within the bound for every end.
 */
const LINK_DOWN_GRACE_MS = 40_000;

/** When an execution must have ended at the latest. */
export function lastMoment(deadlineAtMs: number): number {
  return deadlineAtMs + LINK_DOWN_GRACE_MS;
}

export function nextLook(
  record: SessionRecord,
  open: readonly ExecutionRecord[],
  nowMs: number,
): number | null {
  const moments: number[] = [];
  const isLive = ['creating', 'running', 'suspended'].includes(record.state);
  if (isLive && record.sandbox === 'attaching' && record.attachAtMs !== null) {
    moments.push(record.attachAtMs + attachTimeoutMs(record) + BACKSTOP_MS);
  }
  const isUnsure = record.pendingSnapshot !== null && record.pendingSnapshot.unsure !== null;
  if (isUnsure) moments.push(nowMs + UNSURE_LOOK_MS);
  else if (record.pendingSnapshot !== null) moments.push(record.pendingSnapshot.atMs + SUSPEND_PATIENCE_MS);
  if (record.state === 'suspended') moments.push(forgottenAt(record));
  const wakeAtMs = wakeAt(record);
  if (wakeAtMs !== null) moments.push(wakeAtMs > nowMs ? wakeAtMs : nowMs + OVERTIME_LOOK_MS);
  for (const { deadlineAtMs } of open) {
    if (deadlineAtMs === null || standsStill(record)) continue;
    moments.push(nowMs < deadlineAtMs ? deadlineAtMs + BACKSTOP_MS : lastMoment(deadlineAtMs));
  }
  const isHeld = record.state === 'running' || record.state === 'paused';
  if (isHeld && record.linkDownAtMs !== null && !isUnsure) moments.push(record.linkDownAtMs + HOST_DEAD_MS);
  if (record.state === 'running' && open.length === 0) {
    moments.push(idleAt(record));
    // What keeps it open beyond its lifetime is looked at again and again.
    if (record.expiresAtMs !== null) {
      moments.push(record.expiresAtMs > nowMs ? record.expiresAtMs : nowMs + OVERTIME_LOOK_MS);
    }
  }
  if (record.state === 'running' && open.every(waitsForTools)) {
    const suspendAtMs = suspendAt(record);
    if (suspendAtMs !== null) moments.push(suspendAtMs);
  }
  // What waits for a sandbox waits in memory: after an eviction the alarm takes it up again.
  if (record.state !== 'paused' && open.length > 0 && open.every(isToBeSent)) {
    moments.push(nowMs + QUEUE_LOOK_MS);
  }
  if (record.destroyAtMs !== null) moments.push(record.destroyAtMs);
  if (record.purgeAtMs !== null) moments.push(record.purgeAtMs);
  return moments.length === 0 ? null : Math.min(...moments);
}

/** On pause no deadline comes nearer, as long as there is a sandbox that stands still, and none while it is stored. */
export function standsStill({ state, sandbox }: SessionRecord): boolean {
  return state === 'suspended' || (state === 'paused' && sandbox === 'ready');
}

/** A sandbox that is made of a snapshot has to be fetched first. */
export function attachTimeoutMs({ snapshot }: Pick<SessionRecord, 'snapshot'>): number {
  return snapshot === null ? ATTACH_TIMEOUT_MS : RESTORE_TIMEOUT_MS;
}

/** A program that waits for its tools does nothing meanwhile. */
export function waitsForTools({ status }: ExecutionRecord): boolean {
  return status === 'waiting';
}

/** When an idle session moves into a snapshot, if it was asked to. */
export function suspendAt({ lastActivityAtMs, facts }: SessionRecord): number | null {
  return facts.suspendAfterIdleMs === null ? null : lastActivityAtMs + facts.suspendAfterIdleMs;
}

/** When a suspended session that was to come back, and did not, is woken again. */
export function wakeAt({ state, sandbox, snapshot }: SessionRecord): number | null {
  if (state !== 'suspended' || sandbox === 'attaching') return null;
  return snapshot?.wake?.atMs ?? null;
}

const FIRST_WAKE_RETRY_MS = 5_000;
const LONGEST_WAKE_RETRY_MS = 300_000;

export function nextWakeDelayMs(tries: number): number {
  return Math.min(LONGEST_WAKE_RETRY_MS, FIRST_WAKE_RETRY_MS * 2 ** Math.min(tries, 10));
}

/** When a suspended session that nobody woke ends. */
export function forgottenAt({ snapshot, lastActivityAtMs }: SessionRecord): number {
  return Math.max(snapshot?.atMs ?? 0, lastActivityAtMs) + SUSPENDED_LIVE_MS;
}

/** When the lifetime is over; on pause it moves away with every moment. */
export function expiryOf({ expiresAtMs, pausedAtMs }: SessionRecord, nowMs: number): number | null {
  if (expiresAtMs === null) return null;
  return expiresAtMs + (pausedAtMs === null ? 0 : Math.max(0, nowMs - pausedAtMs));
}

export function isOver(record: SessionRecord, nowMs: number): boolean {
  const atMs = expiryOf(record, nowMs);
  return atMs !== null && nowMs >= atMs;
}

export function idleAt(record: SessionRecord): number {
  return record.lastActivityAtMs + record.facts.idleTimeoutMs;
}

const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 60_000;
/** About 25 minutes: a host redials for ten at most, and keeps no sandbox beyond that. */
const MAX_DESTROY_TRIES = 30;

/** When to tell the host again to destroy the sandbox; null when it was told often enough. */
export function nextDestroyTry(tries: number, nowMs: number): number | null {
  if (tries >= MAX_DESTROY_TRIES) return null;
  return nowMs + Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(tries, 10));
}
