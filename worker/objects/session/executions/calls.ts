/** Calls of the API that concern executions. */
import { type Failure, failure, type Outcome, success } from '../../../../shared/errors.ts';
import { type EventCursor, type Execution, parseCursor } from '../../../../shared/execution.ts';
import { isTerminal } from '../../../../shared/lifecycle.ts';
import type { Caller } from '../../caller.ts';
import { isOver } from '../alarm/agenda.ts';
import { eventStream } from '../event-logs/event-stream.ts';
import { notFound } from '../lifecycle/creation.ts';
import type { ExecuteInput } from '../port.ts';
import type { ExecutionRecord, SessionRecord } from '../rows/records.ts';
import { isOwner } from '../rows/session-row.ts';
import type { SessionRuntime } from '../runtime.ts';
import type { Taking } from './executions.ts';

/**
 * Accepts an execution, or finds the one that the idempotency key names. Nothing waits before it is taken in, so two
 * calls with one key never both are; when this resolves its row is written.
 */
export async function accept(
  runtime: SessionRuntime,
  input: ExecuteInput,
  taking: Taking,
): Promise<Outcome<ExecutionRecord>> {
  const key = input.idempotency?.key ?? null;
  for (;;) {
    const former = formerCall(runtime, input);
    if (former !== undefined) return former;
    const admitting = key === null ? undefined : runtime.account.admitting(key);
    if (admitting === undefined) break;
    await admitting;
  }
  const admission = runtime.account.admission(input.body.timeout_ms, key);
  if (admission === null) return take(runtime, runtime.executions.accept(input, taking));
  const admitted = await admission;
  if (!admitted.ok) return admitted;
  // What was so before the tenant was asked need not be so any more.
  const former = formerCall(runtime, input);
  const accepted = former ?? runtime.executions.accept(input, taking);
  admitted.value.settled(former === undefined && accepted.ok);
  return former ?? take(runtime, accepted);
}

async function take(
  runtime: SessionRuntime,
  accepted: Outcome<ExecutionRecord>,
): Promise<Outcome<ExecutionRecord>> {
  if (!accepted.ok) return accepted;
  await runtime.dispatch.take(accepted.value);
  return accepted;
}

/** The execution that the key names, or why there can be none; undefined where one may be taken in. */
function formerCall(runtime: SessionRuntime, input: ExecuteInput): Outcome<ExecutionRecord> | undefined {
  const { row, executions } = runtime;
  const record = row.maybe;
  if (record === undefined || !isOwner(record, input.caller)) return notFound();
  // The key comes first: a stored result is given back also when the session is gone.
  const known = input.idempotency === null ? undefined : executions.findByKey(input.idempotency.key);
  if (known !== undefined) {
    return known.fingerprint === input.idempotency?.fingerprint
      ? success(known)
      : failure('idempotency_conflict', 'the key was used for another request');
  }
  switch (record.state) {
    case 'running':
    // What is sent to a paused session waits until it goes on.
    case 'paused':
      if (!isOver(record, Date.now())) return undefined;
      return failure('session_not_running', 'the lifetime of the session is over');
    case 'destroying':
    case 'destroyed':
      return notFound();
    case 'error':
      return failure('session_failed', `the session has failed: ${record.errorCode ?? 'unknown'}`);
    default:
      return failure('session_not_running', `the session is ${record.state}`, { retry_after_s: 1 });
  }
}

/** Brings a suspended session back for a call that it has not taken in before. */
export async function wakeFor(
  { row, executions, waking }: SessionRuntime,
  { caller, idempotency }: ExecuteInput,
): Promise<Outcome<null>> {
  if (row.ownedBy(caller)?.state !== 'suspended') return success(null);
  const isKnown = idempotency !== null && executions.findByKey(idempotency.key) !== undefined;
  return isKnown ? success(null) : waking.wake();
}

export function streamOf(
  runtime: SessionRuntime,
  record: ExecutionRecord,
  options: { cursor: EventCursor | undefined; encoding: 'utf-8' | 'base64' | undefined },
): Response {
  const { executions, logs, programs } = runtime;
  const { executionId } = record;
  const log = isTerminal(record.status) ? logs.ofEnded(record) : logs.of(record);
  const encoding = options.encoding ?? record.encoding;
  const isProgram = programs.store.find(record.n) !== undefined;
  let ended: Execution | undefined;
  return eventStream(
    {
      executionId,
      log,
      encoding,
      startedAt: () => record.startedAt,
      pausedAtMs: () => stoodStillSinceMs(runtime.row.record),
      toolCalls: isProgram ? (after) => programs.eventsAfter(record, after) : () => [],
      ended: () => {
        if (ended === undefined && isTerminal(record.status)) {
          ended = executions.view(record, { encoding, withoutText: true });
        }
        return ended;
      },
    },
    options.cursor ?? { executionId, stdoutBytes: 0, stderrBytes: 0, otherEvents: 0 },
  );
}

/** While the session is paused or suspended. */
function stoodStillSinceMs({ state, pausedAtMs, snapshot }: SessionRecord): number | null {
  return state === 'suspended' ? (snapshot?.atMs ?? null) : pausedAtMs;
}

/** Before anything is begun for a stream: whether one more may be read in this session. */
export function readersFault({ logs }: SessionRuntime): Failure | undefined {
  if (logs.takesReaders) return undefined;
  return failure('quota_exceeded', 'too many streams of this session are being read', { retry_after_s: 1 });
}

/** The cursor of a header, if it is one of this execution. */
export function cursorOf(lastEventId: string | null, executionId: string): EventCursor | undefined {
  const cursor = lastEventId === null ? undefined : parseCursor(lastEventId);
  return cursor?.executionId === executionId ? cursor : undefined;
}

/** As `find`, but what a key is answered with is there also when its session has ended. */
export function findKept(
  runtime: SessionRuntime,
  caller: Caller,
  executionId: string,
): Outcome<ExecutionRecord> {
  const session = runtime.row.maybe;
  const isTheirs = session !== undefined && isOwner(session, caller);
  const record = isTheirs ? runtime.executions.find(executionId) : undefined;
  const isKept = record !== undefined && record.idempotencyKey !== null;
  return isKept ? success(record) : find(runtime, caller, executionId);
}

/** An execution of a session that is the caller's and there. */
export function find(runtime: SessionRuntime, caller: Caller, executionId: string): Outcome<ExecutionRecord> {
  if (runtime.row.ownedBy(caller) === undefined) return notFound();
  const record = runtime.executions.find(executionId);
  return record === undefined ? failure('not_found', 'no such execution') : success(record);
}
