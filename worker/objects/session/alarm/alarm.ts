/** What the alarm does. It may ring early, late, twice or after an eviction: each step looks at the rows first. */
import { failure } from '../../../../shared/errors.ts';
import { HOST_DEAD_MS } from '../../../../shared/limits.ts';
import type { Env } from '../../../env.ts';
import { logInfo, logWarning, messageOf } from '../../log.ts';
import { failed } from '../lifecycle/creation.ts';
import { destroyAgain, endSession, loseHost, purge } from '../lifecycle/ending.ts';
import type { SessionRuntime } from '../runtime.ts';
import { SANDBOX_GONE } from '../suspension/suspension.ts';
import { forgottenAt, idleAt, isOver, suspendAt, waitsForTools } from './agenda.ts';

/** Set before the work, so that an alarm that fails rings again. */
const RETRY_MS = 10_000;

type Step = (runtime: SessionRuntime, env: Env, nowMs: number) => Promise<void> | void;

const STEPS: Record<string, Step> = {
  attach: endOverdueAttach,
  deadlines: ({ deadlines, executions }, _env, nowMs) => deadlines.check(executions.open, nowMs),
  programs: ({ programs }, _env, nowMs) => programs.check(nowMs),
  edgeCalls: ({ edgeCalls }, _env, nowMs) => edgeCalls.check(nowMs),
  link: judgeLink,
  queue: ({ dispatch }) => void dispatch.pump(),
  snapshot: ({ suspension }, _env, nowMs) => suspension.checkOverdue(nowMs),
  move: judgeMove,
  wake: ({ waking }, _env, nowMs) => waking.retry(nowMs),
  outputs: ({ outputs }) => outputs.kick(),
  suspend: suspendIdle,
  idle: endIdle,
  forgotten: endForgotten,
  events: ({ events }, _env, nowMs) => events.check(nowMs),
  account: ({ account }, _env, nowMs) =>
    account.dueAtMs !== null && account.dueAtMs <= nowMs ? account.report() : undefined,
  retention: ({ retention }, _env, nowMs) => retention.check(nowMs),
  destroy: (runtime, _env, nowMs) => destroyAgain(runtime, nowMs),
  purge,
};

export async function ring(runtime: SessionRuntime, env: Env): Promise<void> {
  if (runtime.row.maybe === undefined) return;
  const nowMs = Date.now();
  runtime.clock.set(nowMs + RETRY_MS);
  let hasFailed = false;
  for (const [step, run] of Object.entries(STEPS)) {
    try {
      await run(runtime, env, nowMs);
    } catch (error: unknown) {
      hasFailed = true;
      logWarning('alarm_step_failed', { step, detail: messageOf(error) });
    }
  }
  if (!hasFailed) runtime.clock.set(runtime.nextLook());
}

/** An attach whose waiter an eviction took. */
async function endOverdueAttach(runtime: SessionRuntime, env: Env, nowMs: number): Promise<void> {
  if (!runtime.row.isLive || !runtime.sandbox.isOverdue(nowMs)) return;
  const why = failure('host_unresponsive', 'the host made no sandbox in time');
  if (runtime.row.record.state === 'creating') await failed(runtime, env, why);
  else runtime.sandboxChanges.takenForLost('link_lost');
}

async function judgeLink(runtime: SessionRuntime, env: Env, nowMs: number): Promise<void> {
  const { row, link, sandbox } = runtime;
  if (row.record.state !== 'running' && row.record.state !== 'paused') return;
  // Whether the session has moved out of reach of its host is judged first.
  if ((row.record.pendingSnapshot?.unsure ?? null) !== null) return;
  link.dropIfSilent(nowMs);
  const { linkDownAtMs } = row.record;
  if (linkDownAtMs === null || nowMs < linkDownAtMs + HOST_DEAD_MS) return;
  if (await sandbox.isHostConnected()) runtime.sandboxChanges.takenForLost('link_lost');
  else await loseHost(runtime, env);
}

/** The storage may say by now whether the session is in the snapshot that it was about to move into. */
async function judgeMove(runtime: SessionRuntime, env: Env): Promise<void> {
  const { row, suspension } = runtime;
  const reason = row.record.pendingSnapshot?.unsure ?? null;
  if (reason === null) return;
  if (row.record.sandbox === 'lost') await suspension.sandboxGone(reason, SANDBOX_GONE);
  else await loseHost(runtime, env);
}

/** A session that cannot be suspended stays as it is, and is looked at again after as long. */
async function suspendIdle(
  { row, executions, transfers, suspension }: SessionRuntime,
  _env: Env,
  nowMs: number,
) {
  const atMs = suspendAt(row.record);
  if (row.record.state !== 'running' || atMs === null || nowMs < atMs) return;
  if (!executions.open.every(waitsForTools)) return;
  if (row.record.sandbox !== 'ready' || suspension.isPending) return;
  const suspended = transfers.isMoving ? failure('session_not_running', 'busy') : await suspension.suspend();
  if (suspended.ok || row.record.state !== 'running') return;
  logInfo('idle_session_not_suspended', { session_id: row.record.facts.sessionId, code: suspended.code });
  row.patch({ lastActivityAtMs: Date.now() });
}

async function endForgotten(runtime: SessionRuntime, env: Env, nowMs: number): Promise<void> {
  const { row, executions } = runtime;
  if (row.record.state !== 'suspended' || nowMs < forgottenAt(row.record)) return;
  if (executions.firstToSend === undefined) await endSession(runtime, env, 'session_expired');
}

async function endIdle(runtime: SessionRuntime, env: Env, nowMs: number): Promise<void> {
  const { row, executions, transfers, edgeCalls } = runtime;
  const { record } = row;
  if (record.state !== 'running' || executions.open.length > 0) return;
  if (nowMs < idleAt(record) && !isOver(record, nowMs)) return;
  if (transfers.isMoving || edgeCalls.areRunning) {
    row.patch({ lastActivityAtMs: nowMs });
    return;
  }
  await endSession(runtime, env, 'session_expired');
}
