/**
 * Waits for a call over MCP: reports its output where that is wanted, and stops it when the client gives it up. A call
 * that may become a task is given back as it stands where it lasts longer than a moment; it goes on by itself then.
 */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { Execution } from '../../shared/execution.ts';
import { isTerminal } from '../../shared/lifecycle.ts';
import { type AttendedCall, awaitCall } from '../calls/attended-call.ts';
import { SAFE } from '../objects/object-calls.ts';
import { followOutput } from './follow-output.ts';
import type { OnProgress } from './progress.ts';
import type { TaskCreation } from './tasks.ts';

export interface Attendance {
  signal: AbortSignal;
  onProgress: OnProgress | undefined;
  /** Hears of the execution as soon as it is taken in. */
  onTaken: ((execution: Execution) => void) | undefined;
  tasks: TaskCreation | undefined;
}

export async function attend(
  call: AttendedCall,
  { signal, onProgress, onTaken, tasks }: Attendance,
  stop: () => Promise<Outcome<unknown>>,
): Promise<Outcome<Execution>> {
  if (signal.aborted) return failure('execution_not_running', 'the call was cancelled before it began');
  const ended = takenCall(call, onTaken).then((taken) =>
    taken.ok ? answered(call, { onProgress, tasks }) : taken,
  );
  let stopping: Promise<void> | undefined;
  const onAbort = () => {
    stopping = stopped(stop);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await ended;
  } finally {
    signal.removeEventListener('abort', onAbort);
    await stopping;
  }
}

function answered(
  call: AttendedCall,
  { onProgress, tasks }: Pick<Attendance, 'onProgress' | 'tasks'>,
): Promise<Outcome<Execution>> {
  if (call.edge !== undefined) return awaitCall(call);
  if (tasks !== undefined) return endedOrLasting(call, { onProgress, momentMs: tasks.momentMs });
  return onProgress === undefined ? awaitCall(call) : awaitWithProgress(call, onProgress);
}

/** What lasts is written in its session by then: it can be read from now on, whatever becomes of this request. */
async function endedOrLasting(
  call: AttendedCall,
  { onProgress, momentMs }: { onProgress: Attendance['onProgress']; momentMs: number },
): Promise<Outcome<Execution>> {
  const { session, finish } = call;
  const accepted = await call.accepted();
  if (!accepted.ok) return accepted;
  const { execution_id } = accepted.value;
  const followed = onProgress === undefined ? undefined : followOutput(session, execution_id, onProgress);
  const recalled = await session.call((stub) => stub.recall(session.caller, execution_id, momentMs), SAFE);
  followed?.close();
  return recalled.ok && isTerminal(recalled.value.status) ? success(finish(recalled.value)) : recalled;
}

async function stopped(stop: () => Promise<Outcome<unknown>>): Promise<void> {
  const outcome = await stop().catch((error: unknown) =>
    failure('internal', error instanceof Error ? error.message : 'unknown'),
  );
  // Stopped or not, the call ends at its deadline.
  if (!outcome.ok && outcome.code !== 'not_found') {
    const { code, detail } = outcome;
    console.warn(JSON.stringify({ level: 'warn', event: 'mcp_call_not_stopped', code, detail }));
  }
}

async function takenCall(
  call: AttendedCall,
  onTaken: Attendance['onTaken'],
): Promise<Outcome<Execution | null>> {
  // Without somebody who hears of it, one request to the session may do for all.
  if (onTaken === undefined) return success(null);
  const taken = await (call.edge === undefined ? call.accepted() : call.edge.begun());
  if (taken.ok) onTaken(taken.value);
  return taken;
}

/** The result is read at the end: the stream does not repeat the text that it gave. */
async function awaitWithProgress(call: AttendedCall, onProgress: OnProgress): Promise<Outcome<Execution>> {
  const accepted = await call.accepted();
  if (!accepted.ok) return accepted;
  const followed = followOutput(call.session, accepted.value.execution_id, onProgress);
  await followed.ended;
  followed.close();
  return awaitCall(call);
}
