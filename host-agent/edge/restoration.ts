/** Makes a sandbox of a snapshot, and goes on with the call that ran in it once the edge agrees, or stops it before. */
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { GrantClaims } from '../../shared/grant.ts';
import { RESTORE_TIMEOUT_MS, type RestorePayload } from '../../shared/snapshot.ts';
import type { CarriedRun, HostState } from '../execution/carried.ts';
import { OutputRecorder } from '../execution/output-recorder.ts';
import { PendingOutput } from '../execution/pending-output.ts';
import { ProgramCalls } from '../execution/program-calls.ts';
import type { HostedSession } from '../execution/session.ts';
import type { Uplink } from '../execution/uplink.ts';
import type { StartedEntry } from '../journal/entries.ts';
import type { Journal } from '../journal/journal.ts';
import type { OutputSink, RunningExecution, Sandbox, SandboxConfig, Sandboxes } from '../sandbox/port.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { RestoredSession } from './attachment.ts';

const NOWHERE: OutputSink = async () => undefined;

export interface RestorationParts {
  journal: Journal;
  sandboxes: Sandboxes;
  snapshots: Snapshots;
}

export interface Restored {
  sandbox: Sandbox;
  session: RestoredSession;
}

/** Where it fails nothing is left of it here, and the snapshot is what it was. */
export async function restoreSession(
  { journal, sandboxes, snapshots }: RestorationParts,
  config: SandboxConfig,
  grant: { claims: GrantClaims; snapshot: RestorePayload },
): Promise<Outcome<Restored>> {
  if (sandboxes.restore === undefined) return failure('restore_failed', 'this host restores no checkpoints');
  const { claims, snapshot } = grant;
  const folder = await snapshots.folder();
  try {
    const signal = AbortSignal.timeout(RESTORE_TIMEOUT_MS);
    const fetched = await snapshots.fetch(folder, snapshot, claims, signal);
    if (!fetched.ok) return fetched;
    const { state } = fetched.value;
    const runs = runsToGoOn(state, grant).map((run) => new RestoredRun(run, claims, state));
    for (const run of runs) {
      // As every start: on disk before anything of it runs here.
      const journaled = await journal.started(run.started);
      if (!journaled.ok) return journaled;
    }
    const runOf = (tool: string): RestoredRun | undefined =>
      runs.find(({ started }) => started.tool === tool);
    const restored = await sandboxes.restore(config, {
      imageDir: folder,
      state: state.sandbox,
      generation: snapshot.generation,
      sinkOf: (tool) => runOf(tool)?.output.sink ?? NOWHERE,
      programOf: (tool) => runOf(tool)?.calls ?? undefined,
      endsCall: (tool) => runOf(tool) === undefined,
    });
    if (!restored.ok) return restored;
    const { sandbox, calls, goOn } = restored.value;
    return success({
      sandbox,
      session: {
        snapshotId: snapshot.snapshot_id,
        adopt: (session, uplink) => {
          for (const { tool, execution } of calls) runOf(tool)?.adopt(execution, session, uplink);
        },
        goOn,
      },
    });
  } catch (error: unknown) {
    return failure('restore_failed', error instanceof Error ? error.message : 'the sandbox was not restored');
  } finally {
    await snapshots.remove(folder);
  }
}

/** One call of a checkpoint that goes on here under its id. */
class RestoredRun {
  readonly started: StartedEntry;
  readonly output = new PendingOutput();
  /** Of a program. */
  readonly calls: ProgramCalls | null;
  readonly #run: CarriedRun;

  constructor(run: CarriedRun, { epoch }: GrantClaims, { sandbox }: HostState) {
    this.#run = run;
    this.calls = isProgram(sandbox, run.started.tool) ? new ProgramCalls(run.started.execution_id) : null;
    this.started = { ...run.started, epoch, former_hosts: run.hosts };
  }

  adopt(running: RunningExecution, session: HostedSession, uplink: Uplink): void {
    const { execution_id: executionId } = this.started;
    const recorder = new OutputRecorder({ executionId, relay: this.#run.relay, uplink });
    recorder.goOnFrom(this.#run.output);
    this.output.attach(recorder.write);
    this.calls?.begin(running, uplink);
    session.adopt(this.started, this.#run, { running, recorder, calls: this.calls });
  }
}

function isProgram({ tools }: HostState['sandbox'], tool: string): boolean {
  return (tool === 'python' || tool === 'node') && tools[tool].kernel?.running?.program !== undefined;
}

/** A call goes on only in its own session: a copy of the session has none. */
function runsToGoOn(
  { runs }: HostState,
  { claims, snapshot }: { claims: GrantClaims; snapshot: RestorePayload },
): CarriedRun[] {
  if (snapshot.executions === 'stop') return [];
  return runs.filter(({ started }) => started.session_id === claims.sid && started.tenant === claims.tenant);
}
