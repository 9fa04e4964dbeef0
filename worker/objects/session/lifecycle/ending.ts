/** Ends the session: its executions at once, its sandbox as soon as the host does, its rows a while later. */
import { failure } from '../../../../shared/errors.ts';
import type { Env } from '../../../env.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import { nextDestroyTry } from '../alarm/agenda.ts';
import { FAILED_LIVE_MS, KEYS_LIVE_MS, READERS_LEAVE_MS } from '../retention/retention.ts';
import type { SessionRuntime } from '../runtime.ts';
import { mayLiePlain } from '../suspension/held-snapshot.ts';
import { listEntry } from '../view.ts';
import { rebuild } from './rebuilding.ts';

/** A caller that deletes waits this long for the host to confirm. */
const CONFIRMATION_MS = 4_000;

export type EndReason = 'session_deleted' | 'session_expired' | 'session_ended';

/** Resolves when the sandbox is gone, or the host was told and did not say so in time. */
export async function endSession(runtime: SessionRuntime, env: Env, reason: EndReason): Promise<void> {
  const { row, executions, sandbox } = runtime;
  const { facts, state, snapshot } = row.record;
  const nowMs = Date.now();
  const holdsNoHost = state === 'suspended' && row.record.sandbox === 'lost';
  row.move('destroying', { destroyAtMs: nextDestroyTry(0, nowMs + CONFIRMATION_MS), destroyTries: 1 });
  sandbox.cancelAttach(failure('session_deleted', 'the session was deleted'));
  runtime.pausing.cancel(failure('not_found', 'the session was deleted'));
  runtime.suspension.cancel(failure('not_found', 'the session was deleted'));
  if (snapshot?.isOwn === true) {
    void runtime.suspension.records.release(snapshot.snapshotId);
    row.patch({ snapshot: null });
  }
  runtime.restorePoints.releaseAll();
  void runtime.lineage.giveWay();
  executions.endAll('interrupted', reason);
  runtime.transfers.endAll(failure('not_found', 'the session was deleted'));
  runtime.detached.stopAll();
  runtime.look();
  logInfo('session_ending', { session_id: facts.sessionId, reason });

  if (holdsNoHost) {
    if (mayLiePlain(snapshot, nowMs)) void sandbox.letGoAtHost();
    sandbox.markDestroyed();
  }
  const [isGone] = await Promise.all([destroySandbox(runtime), forgetInTenant(runtime, env)]);
  row.move('destroyed', { purgeAtMs: nowMs + READERS_LEAVE_MS });
  if (isGone) await confirmGone(runtime);
  runtime.look();
}

/** An eviction came between: what it left half done is done again, the sandbox is the alarm's. */
export async function resumeEnding(runtime: SessionRuntime, env: Env): Promise<void> {
  runtime.executions.endAll('interrupted', 'session_deleted');
  runtime.row.move('destroyed', { purgeAtMs: Date.now() + READERS_LEAVE_MS });
  runtime.look();
  await forgetInTenant(runtime, env);
}

async function forgetInTenant({ row, account, events }: SessionRuntime, env: Env): Promise<void> {
  const { tenant, sessionId } = row.record.facts;
  try {
    const terms = await env.TENANT.getByName(tenant).forgetSession(sessionId, account.close());
    events.heard(terms.webhooksSinceMs);
  } catch (error: unknown) {
    logWarning('session_not_forgotten', { session_id: sessionId, detail: messageOf(error) });
  }
}

async function destroySandbox(runtime: SessionRuntime): Promise<boolean> {
  const { sandbox } = runtime;
  if (sandbox.isGone) return true;
  try {
    const gone = sandbox.gone(CONFIRMATION_MS);
    await Promise.race([sandbox.sendDestroy(), gone]);
    return await gone;
  } catch (error: unknown) {
    logWarning('destroy_failed', { detail: messageOf(error) });
    return false;
  }
}

/** The host confirmed: nobody has to hear of this session any more. */
export async function confirmGone(runtime: SessionRuntime): Promise<void> {
  runtime.sandbox.markDestroyed();
  runtime.link.fence();
  await runtime.sandbox.forgetAtHost();
}

/** From the alarm: the host has not confirmed yet, so it is told once more. */
export async function destroyAgain(runtime: SessionRuntime, nowMs: number): Promise<void> {
  const { row, sandbox } = runtime;
  const { destroyAtMs, destroyTries, sandbox: state } = row.record;
  if (destroyAtMs === null || destroyAtMs > nowMs || state === 'destroyed') return;
  row.patch({ destroyAtMs: nextDestroyTry(destroyTries, nowMs), destroyTries: destroyTries + 1 });
  await sandbox.sendDestroy();
}

/** From the alarm: removes what is left of a session that ended, but for the row that says so. */
export async function purge(runtime: SessionRuntime, env: Env, nowMs: number): Promise<void> {
  const { row, store, events, edgeCalls } = runtime;
  const { purgeAtMs } = row.record;
  if (purgeAtMs === null || purgeAtMs > nowMs) return;
  if (row.record.state === 'error') {
    row.move('destroying');
    row.move('destroyed');
  }
  // Again, for where it failed before: a session that its tenant takes for live would count against its limits for good.
  await forgetInTenant(runtime, env);
  await runtime.outputs.removeAll();
  store.transaction(() => store.deleteUnkeyed());
  edgeCalls.abandon(nowMs);
  events.purge();
  const isLast = store.executionCount() === 0 || nowMs >= row.record.lastActivityAtMs + KEYS_LIVE_MS;
  if (isLast) store.transaction(() => store.deleteHistory());
  row.patch({ purgeAtMs: isLast ? null : row.record.lastActivityAtMs + KEYS_LIVE_MS });
}

/** The host is dead: what ran there is unknown, and the session cannot go on. */
export async function loseHost(runtime: SessionRuntime, env: Env): Promise<void> {
  const { row, executions } = runtime;
  // A suspended session holds no host; one that is being restored there is told by its attach.
  if (!row.isLive || row.record.state === 'suspended') return;
  const { facts, state } = row.record;
  if (facts.onHostLoss === 'rebuild' && state !== 'creating') return rebuild(runtime, env, 'host_lost');
  const judgement = await runtime.suspension.takeIn('host_lost');
  if (judgement !== 'not_moved' || !row.isLive) return;
  row.move('error', {
    errorCode: 'host_lost',
    errorDetail: 'the host of the session is gone',
    destroyAtMs: Date.now(),
    purgeAtMs: Date.now() + FAILED_LIVE_MS,
  });
  const why = failure('host_lost', 'the host of the session is gone');
  for (const record of executions.open) executions.answer(record, () => why);
  executions.endAll('unknown', 'host_lost');
  runtime.transfers.endAll(why);
  runtime.sandbox.cancelAttach(why);
  runtime.pausing.cancel(why);
  runtime.suspension.cancel(why);
  runtime.link.fence();
  runtime.look();
  logWarning('session_host_lost', { session_id: row.record.facts.sessionId });
  const { tenant, subject } = row.record.facts;
  const terms = await env.TENANT.getByName(tenant).recordSession({
    subject,
    entry: listEntry(row.record, 'error'),
  });
  runtime.events.heard(terms.webhooksSinceMs);
}
