/** Carries out a `suspend` grant: a checkpoint, all of it to the edge, and the word that it is stored or that it failed. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import {
  type CarriedExecution,
  SUSPEND_TIMEOUT_MS,
  type SuspendPayload,
  WORKSPACE_FILE,
} from '../../shared/snapshot.ts';
import type { ToolName } from '../../shared/tool.ts';
import type { Log } from '../logging/log.ts';
import type { Checkpoint, Sandbox } from '../sandbox/port.ts';
import type { Snapshots, Stored } from '../snapshots/snapshots.ts';
import { type CarriedRun, HOST_STATE_FILE, type HostState, MAX_HOST_STATE_BYTES } from './carried.ts';
import type { SessionBinding } from './grant-check.ts';
import type { ExecutionLanes } from './lanes.ts';
import type { Uplink } from './uplink.ts';

export interface SuspensionParts {
  binding: SessionBinding;
  sandbox: Sandbox;
  runner: ExecutionLanes;
  uplink: Uplink;
  snapshots: Snapshots;
  hostId: string;
  /** Of the guest. */
  generation: number;
  log: Log;
  /** The edge has it: nothing more is said of the session from here. */
  onMoved: () => void;
}

/** Never rejects. Where it fails the session runs on, and the edge is told. */
export async function suspend(parts: SuspensionParts, payload: SuspendPayload): Promise<void> {
  const { sandbox, uplink, log, binding } = parts;
  const lost = new AbortController();
  void sandbox.lost.then(() => lost.abort());
  const signal = AbortSignal.any([lost.signal, AbortSignal.timeout(SUSPEND_TIMEOUT_MS)]);
  const beganMs = performance.now();
  const done = await suspendInFolder(parts, payload, signal).catch((error: unknown) =>
    failure('suspend_failed', error instanceof Error ? error.message : 'the checkpoint failed'),
  );
  const { sessionId: session_id } = binding;
  if (done.ok) {
    const duration_ms = Math.round(performance.now() - beganMs);
    log.info({ event: 'session_suspended', session_id, duration_ms, bytes: done.value });
    return;
  }
  log.warn({ event: 'suspend_failed', session_id, code: done.code, detail: done.detail });
  // The word that the sandbox is gone says all.
  if (lost.signal.aborted) return;
  const { snapshot_id } = payload;
  uplink.send({ type: 'suspend_failed', snapshot_id, code: done.code, detail: safeDetail(done) });
}

async function suspendInFolder(
  parts: SuspensionParts,
  payload: SuspendPayload,
  signal: AbortSignal,
): Promise<Outcome<number>> {
  const { sandbox, snapshots } = parts;
  if (sandbox.checkpoint === undefined) return failure('suspend_failed', 'this host makes no checkpoints');
  const folder = await snapshots.folder();
  try {
    const { maxWorkspaceBytes: maxBytes } = snapshots;
    const wish = payload.workspace === true ? { path: join(folder, WORKSPACE_FILE), maxBytes } : undefined;
    const taken = await sandbox.checkpoint(folder, wish);
    return taken.ok ? await storeAndMove(folder, parts, payload, { taken: taken.value, signal }) : taken;
  } finally {
    await snapshots.remove(folder);
  }
}

/** The sandbox stands still at first; whatever happens it goes on or has moved at the end. */
async function storeAndMove(
  folder: string,
  parts: SuspensionParts,
  payload: SuspendPayload,
  { taken, signal }: { taken: Checkpoint; signal: AbortSignal },
): Promise<Outcome<number>> {
  let isStill = true;
  const goOn = async (): Promise<void> => {
    if (!isStill) return;
    isStill = false;
    await taken.goOn();
    for (const { recorder } of parts.runner.live(null)) recorder.goOn();
  };
  try {
    const executions = await carryRuns(folder, parts, taken.state, signal);
    if (!executions.ok) return executions;
    if (payload.leave_running) await goOn();
    const stored = await store(folder, parts, payload, { executions: executions.value, signal });
    if (!stored.ok) return stored;
    if (signal.aborted) {
      await parts.snapshots.forgetSession(parts.binding.sessionId);
      return failure('suspend_failed', 'it took too long');
    }
    const seq = tell(parts, payload, { ...stored.value, ...taken, executions: executions.value });
    if (isStill) isStill = !(await moveAway(parts, taken, seq));
    return success(stored.value.storedBytes);
  } finally {
    await goOn();
  }
}

/** Writes how the host stands beside what gVisor wrote. From then on nothing that the program wrote is sent. */
async function carryRuns(
  folder: string,
  { runner, hostId }: SuspensionParts,
  state: HostState['sandbox'],
  signal: AbortSignal,
): Promise<Outcome<CarriedExecution[]>> {
  const { calls } = state;
  // What the guest had said is with the recorders by the next turn; an end that is being told is told first.
  await turn();
  for (const { recorder } of runner.live(null)) recorder.hold();
  const told = Promise.all([
    runner.settledBut(calls.map(({ tool }) => tool)),
    ...runner.live(null).map((live) => live.calls?.settled()),
  ]);
  await Promise.race([told, aborted(signal)]);
  if (signal.aborted) return failure('suspend_failed', 'an execution did not end in time');
  const runs: CarriedRun[] = [];
  const executions: CarriedExecution[] = [];
  for (const call of calls) {
    const run = runner.carry(call.tool, hasInputOnItsWay(state, call.tool));
    if (run === undefined) return failure('suspend_failed', 'an execution was ending');
    runs.push(run);
    executions.push(carriedExecution(run, call.timeout_left_ms, openCalls(state, call.tool)));
  }
  const hostState: HostState = { v: 1, host_id: hostId, sandbox: state, runs };
  const written = Buffer.from(JSON.stringify(hostState));
  // No host would take it back.
  if (written.length > MAX_HOST_STATE_BYTES)
    return failure('suspend_failed', 'the state of the host is too long');
  await writeFile(join(folder, HOST_STATE_FILE), written, { mode: 0o600 });
  return success(executions);
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

function store(
  folder: string,
  { snapshots, binding, generation }: SuspensionParts,
  payload: SuspendPayload,
  { executions, signal }: { executions: CarriedExecution[]; signal: AbortSignal },
): Promise<Outcome<Stored>> {
  const { sessionId: session_id, epoch, limits, image } = binding;
  return snapshots.store(folder, payload, {
    facts: { session_id, epoch, limits, generation, executions },
    image,
    signal,
    isPatient: executions.length === 0 && !payload.leave_running,
  });
}

/** The number of the frame. */
function tell(
  { uplink, snapshots, binding }: SuspensionParts,
  { snapshot_id, leave_running }: SuspendPayload,
  {
    manifestSha256,
    bytes,
    storedBytes,
    executions,
    workspace,
  }: Stored & Pick<Checkpoint, 'workspace'> & { executions: CarriedExecution[] },
): number {
  return uplink.send({
    type: 'suspended',
    snapshot_id,
    manifest_sha256: manifestSha256,
    left_running: leave_running,
    bytes,
    stored_bytes: storedBytes,
    ...snapshots.requirements(binding.image),
    executions,
    ...(workspace === undefined ? {} : { workspace }),
  });
}

/** Until the edge has taken the word in, the sandbox is kept: what it was may yet be all that there is. */
async function moveAway(
  { uplink, runner, sandbox, onMoved }: SuspensionParts,
  checkpoint: Checkpoint,
  seq: number,
): Promise<boolean> {
  const hasMoved = await Promise.race([
    uplink.whenAcknowledged(seq).then(() => true),
    sandbox.lost.then(() => false),
  ]);
  if (!hasMoved) return false;
  runner.handOff();
  onMoved();
  await checkpoint.end();
  return true;
}

function carriedExecution(
  { started, output, stdin }: CarriedRun,
  timeoutLeftMs: number,
  openCalls: number[] | undefined,
): CarriedExecution {
  return {
    execution_id: started.execution_id,
    stdout_bytes: output.stdout.queue.offset,
    stderr_bytes: output.stderr.queue.offset,
    stdin_bytes: stdin.taken_bytes,
    timeout_left_ms: Math.round(timeoutLeftMs),
    ...(openCalls === undefined ? {} : { open_calls: openCalls }),
  };
}

/** Undefined where it is no program. */
function openCalls({ tools }: HostState['sandbox'], tool: ToolName): number[] | undefined {
  if (tool !== 'python' && tool !== 'node') return undefined;
  return tools[tool].kernel?.running?.program?.outstanding;
}

/** Whether the oldest write to the input of the tool's call is with its program in part. */
function hasInputOnItsWay({ tools, link }: HostState['sandbox'], tool: ToolName): boolean {
  if (tool === 'file') return false;
  const isShell = tool === 'shell' || tool === 'run';
  const channelId = isShell ? tools[tool].running?.channel : tools[tool].kernel?.channel;
  const channel = link.channels.find(({ id }) => id === channelId);
  return channel !== undefined && channel.stdin.waiting !== '';
}

/** Reasons of runsc and of the file system name places of this host. */
function safeDetail({ code, detail }: Failure): string {
  return code === 'storage_unavailable' ? detail.slice(0, 1024) : 'no checkpoint could be made';
}
