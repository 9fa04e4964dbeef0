/** The road of one execution on the host: start, output, end, receipt, journal, and only then the word that it ended. */

import type { Envelope } from '../../shared/dsse.ts';
import type { ExecutionOutcome } from '../../shared/execution.ts';
import type { Relay } from '../../shared/grant.ts';
import type { StartedEntry } from '../journal/entries.ts';
import type { Journal } from '../journal/journal.ts';
import type { ChainHead, StoredFrame } from '../journal/state.ts';
import { lostOutcome } from '../sandbox/lost-outcome.ts';
import type { OutputSink, RunningExecution, Sandbox } from '../sandbox/port.ts';
import { artifactsOf } from './artifacts.ts';
import type { ExecuteRequest } from './grant-check.ts';
import { OutputRecorder } from './output-recorder.ts';
import { ProgramCalls } from './program-calls.ts';
import {
  type ExecutionEnd,
  type HostFacts,
  issueReceipt,
  type ReceiptSigner,
  UNKNOWN_STREAM,
} from './receipt.ts';
import { boundedError, resultParts } from './result-parts.ts';
import type { Turns } from './turns.ts';
import type { OutgoingFrame, Uplink } from './uplink.ts';

export interface RunContext {
  journal: Journal;
  uplink: Uplink;
  host: HostFacts;
  signer: ReceiptSigner;
  /** The head of the session's chain now. */
  chain: () => ChainHead;
  endings: Turns;
}

/** What acts on an execution that runs, and what is known of it. */
export interface RunParts {
  recorder: OutputRecorder;
  wallMs: () => number;
  /** Of a program. */
  calls: ProgramCalls | null;
}

export interface RunHooks {
  onRunning: (running: RunningExecution, parts: RunParts) => void;
  /** Just before the end is told: from then on the edge may send the next call. */
  onTelling: () => void;
  /** Whether another host goes on with it: then nothing more is said of it here. */
  hasMoved: () => boolean;
}

/** Of an execution whose start is in the journal. Settles when its end is sent; never rejects. Null: it has moved. */
export async function runExecution(
  context: RunContext,
  started: StartedEntry,
  call: RunHooks & { sandbox: Sandbox; request: ExecuteRequest },
): Promise<ExecutionOutcome | null> {
  const { uplink } = context;
  const { executionId, relay } = call.request;
  const recorder = new OutputRecorder({ executionId, relay, uplink });
  const calls = isProgram(call.request.arguments) ? new ProgramCalls(executionId) : null;
  const running = execute(call.sandbox, call.request, started, { sink: recorder.write, calls });
  calls?.begin(running, uplink);
  const announcement = announce(uplink, started, relay);
  const followed = followExecution(context, started, { ...call, running, recorder, calls, formerWallMs: 0 });
  void running.finished.then(() => clearTimeout(announcement));
  return followed;
}

/** From the moment that it runs here. */
export async function followExecution(
  context: RunContext,
  started: StartedEntry,
  call: RunHooks & Omit<RunParts, 'wallMs'> & { running: RunningExecution; formerWallMs: number },
): Promise<ExecutionOutcome | null> {
  const { running, recorder, calls } = call;
  const { execution_id: executionId } = started;
  const wallMs = wallClock(running, call.formerWallMs);
  call.onRunning(running, { recorder, calls, wallMs });
  const outcome = await running.finished;
  if (call.hasMoved()) return null;
  calls?.end();
  const recorded = recorder.finish();
  const parts = resultParts(executionId, outcome);
  const frames = [...recorded.frames, ...parts];
  return conclude(context, started, {
    frames,
    error: boundedError(outcome.error),
    shell: outcome.shell,
    end: {
      status: outcome.status,
      exitCode: outcome.exitCode,
      signal: outcome.signal,
      reason: null,
      stateLost: outcome.stateLost,
      usage: { ...outcome.usage, wallMs: wallMs() },
      stdout: recorded.stdout,
      stderr: recorded.stderr,
      artifacts: artifactsOf(parts),
      finishedAt: new Date().toISOString(),
    },
    onTelling: call.onTelling,
  });
}

/** How long it has run, on former hosts as well; time on pause is no part of it. */
function wallClock(running: RunningExecution, formerMs: number): () => number {
  const beganMs = performance.now();
  const pausedBeforeMs = running.pausedMs;
  return () => {
    const pausedMs = running.pausedMs - pausedBeforeMs;
    return formerMs + Math.max(0, performance.now() - beganMs - pausedMs);
  };
}

function isProgram(args: unknown): boolean {
  return typeof args === 'object' && args !== null && 'program' in args;
}

/** The end says when it began, too: a call that is over before this is spared a frame, and the edge its work for it. */
const ANNOUNCE_AFTER_MS = 10;

function announce(uplink: Uplink, started: StartedEntry, relay: Relay): NodeJS.Timeout | undefined {
  const { execution_id, jti: grant_jti, started_at } = started;
  const tell = (): void => void uplink.send({ type: 'started', execution_id, grant_jti, started_at });
  // A client reads along.
  if (relay === 'full') tell();
  return relay === 'full' ? undefined : setTimeout(tell, ANNOUNCE_AFTER_MS);
}

/** The end of an execution that was started before the agent died: its end was not seen, and nothing is guessed. */
export function unknownEnd(started: StartedEntry, reason: string): Conclusion {
  const finishedAt = new Date(Math.max(Date.now(), Date.parse(started.started_at))).toISOString();
  return {
    frames: [],
    error: null,
    end: {
      status: 'unknown',
      exitCode: null,
      signal: null,
      reason,
      stateLost: true,
      usage: { cpuMs: 0, wallMs: 0, peakMemoryBytes: 0, egressBytes: 0 },
      stdout: UNKNOWN_STREAM,
      stderr: UNKNOWN_STREAM,
      artifacts: [],
      finishedAt,
    },
  };
}

export interface Conclusion {
  frames: OutgoingFrame[];
  error: ExecutionOutcome['error'];
  shell?: ExecutionOutcome['shell'];
  end: ExecutionEnd;
}

/** Receipt, journal, then the frames in order, `finished` last. */
async function conclude(
  context: RunContext,
  started: StartedEntry,
  conclusion: Conclusion & { onTelling: () => void },
): Promise<ExecutionOutcome> {
  const { uplink, endings } = context;
  const { execution_id: executionId } = started;
  let { frames } = conclusion;
  // A slow reader is waited for before the turn: ends of other tools do not wait for it. Usually there is room, and
  // everything goes out with the end.
  if (!uplink.hasRoom(outputBytes(frames), executionId)) {
    await sendInOrder(uplink, frames, executionId);
    frames = [];
  }
  return endings.take(async () => {
    const unacknowledged = uplink.unacknowledgedOf(executionId);
    const sealed = { ...context, chain: context.chain() };
    const end = await seal(sealed, started, { ...conclusion, frames }, unacknowledged);
    for (const { frame, payload } of frames) uplink.send(frame, payload);
    conclusion.onTelling();
    tellFinished(context, started, end);
    return end.outcome;
  });
}

function outputBytes(frames: readonly OutgoingFrame[]): number {
  const ofOutput = frames.filter(({ frame }) => frame.type === 'output');
  return ofOutput.reduce((total, { payload }) => total + payload.length, 0);
}

/** Signs how it ended and puts it on disk with everything that the edge may not have yet. */
export async function seal(
  context: Omit<RunContext, 'uplink' | 'chain' | 'endings'> & { chain: ChainHead },
  started: StartedEntry,
  { end, error, shell, frames }: Conclusion,
  unacknowledged: StoredFrame[],
): Promise<{ outcome: ExecutionOutcome; receipt: Envelope }> {
  const outcome = { ...outcomeOf(started, end, error), ...(shell === undefined ? {} : { shell }) };
  const receipt = issueReceipt(started, end, context);
  // A disk that refuses this is made up for by the journal itself; the end is told all the same.
  await context.journal.finished(started, {
    receiptSeq: receipt.seq,
    receiptSha256: receipt.sha256,
    outcome,
    receipt: receipt.envelope,
    frames: [...unacknowledged, ...frames.map((outgoing) => storedFrame(outgoing, started.epoch))],
  });
  return { outcome, receipt: receipt.envelope };
}

/** Only output waits for the window: the rest is bounded per execution, and an end must not wait for a slow reader. */
export async function sendInOrder(
  uplink: Uplink,
  frames: readonly OutgoingFrame[],
  executionId: string,
): Promise<void> {
  for (const { frame, payload } of frames) {
    if (frame.type === 'output') await uplink.waitForRoom(payload.length, executionId);
    uplink.send(frame, payload);
  }
}

/** Sends `finished`, and notes in the journal when the edge has it. */
export function tellFinished(
  context: Pick<RunContext, 'journal' | 'uplink'>,
  started: StartedEntry,
  { outcome, receipt }: { outcome: ExecutionOutcome; receipt: Envelope },
): number {
  const seq = context.uplink.send({ type: 'finished', execution_id: started.execution_id, outcome, receipt });
  void context.uplink
    .whenAcknowledged(seq)
    .then(() => context.journal.acknowledged(started.session_id, started.execution_id));
  return seq;
}

function execute(
  sandbox: Sandbox,
  request: ExecuteRequest,
  started: StartedEntry,
  { sink, calls }: { sink: OutputSink; calls: ProgramCalls | null },
): RunningExecution {
  try {
    return sandbox.execute(
      {
        executionId: request.executionId,
        tool: request.tool,
        arguments: request.arguments,
        timeoutMs: started.limits.timeout_ms,
        stdin: request.stdin,
        ...(calls === null ? {} : { program: calls }),
      },
      sink,
    );
  } catch {
    return {
      writeStdin: neverWrites,
      interrupt: () => {},
      answer: async () => false,
      pausedMs: 0,
      finished: Promise.resolve(lostOutcome('crashed')),
    };
  }
}

async function neverWrites(): ReturnType<RunningExecution['writeStdin']> {
  return { ok: false, code: 'execution_not_running', detail: 'the execution did not start' };
}

function outcomeOf(
  started: StartedEntry,
  end: ExecutionEnd,
  error: ExecutionOutcome['error'],
): ExecutionOutcome {
  return {
    status: end.status,
    exit_code: end.exitCode,
    signal: end.signal,
    error,
    reason: end.reason,
    state_lost: end.stateLost,
    stdout_bytes: end.stdout.bytes,
    stderr_bytes: end.stderr.bytes,
    started_at: started.started_at,
    finished_at: end.finishedAt,
    duration_ms: Math.round(end.usage.wallMs * 1000) / 1000,
  };
}

function storedFrame({ frame, payload }: OutgoingFrame, epoch: number): StoredFrame {
  // The number is given when the frame is sent; a stored one only has to be a valid frame.
  return { header: { ...frame, epoch, seq: 1 }, payload };
}
