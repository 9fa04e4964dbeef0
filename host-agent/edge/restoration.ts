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

export interface RestoreGrant {
  claims: GrantClaims;
  /** SHA-256 of the grant as it came. */
  grantSha256: string;
  snapshot: RestorePayload;
}

/** Where it fails nothing is left of it here, and the snapshot is what it was. */
export async function restoreSession(
  { journal, sandboxes, snapshots }: RestorationParts,
  config: SandboxConfig,
  grant: RestoreGrant,
): Promise<Outcome<Restored>> {
  if (sandboxes.restore === undefined) return failure('restore_failed', 'this host restores no checkpoints');
  const { claims, snapshot } = grant;
  try {
    const signal = AbortSignal.timeout(RESTORE_TIMEOUT_MS);
    const fetched = await snapshots.fetch(snapshot, claims, signal);
    if (!fetched.ok) return fetched;
    await using opened = fetched.value;
    const { folder, state } = opened;
    const forks = forkedRuns(state, grant);
    const runs = [...runsToGoOn(state, grant), ...forks].map((run) => new RestoredRun(run, claims, state));
    for (const run of runs) {
      // As every start: on disk before anything of it runs here.
      const journaled = await journal.started(run.started);
      if (!journaled.ok) return journaled;
    }
    const runOf = (tool: string): RestoredRun | undefined =>
      runs.find(({ started }) => started.tool === tool);
    const restored = await sandboxes.restore(config, {
      imageDir: folder,
      state: withoutUsage(
        state.sandbox,
        forks.map(({ started }) => started.tool),
      ),
      generation: snapshot.generation,
      isCopy: snapshot.executions === 'stop',
      sinkOf: (tool) => runOf(tool)?.output.sink ?? NOWHERE,
      programOf: (tool) => runOf(tool)?.calls ?? undefined,
      endsCall: (tool) => runOf(tool) === undefined,
    });
    if (!restored.ok) await opened.doubt();
    if (!restored.ok) return restored;
    const { sandbox, calls, goOn } = restored.value;
    if (snapshot.executions === 'continue') await opened.forget();
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
  }
}

/** One call of a checkpoint that goes on here under its id. */
class RestoredRun {
  readonly started: StartedEntry;
  readonly output = new PendingOutput();
  /** Of a program. */
  readonly calls: ProgramCalls | null;
  readonly #run: RunToGoOn;

  constructor(run: RunToGoOn, { epoch }: GrantClaims, { sandbox }: HostState) {
    this.#run = run;
    this.calls = isProgram(sandbox, run.started.tool) ? new ProgramCalls(run.started.execution_id) : null;
    const { former_hosts: _, ...started } = run.started;
    this.started = { ...started, epoch, ...(run.hosts.length === 0 ? {} : { former_hosts: run.hosts }) };
  }

  adopt(running: RunningExecution, session: HostedSession, uplink: Uplink): void {
    const { execution_id: executionId } = this.started;
    const recorder = new OutputRecorder({ executionId, relay: this.#run.relay, uplink });
    const { output } = this.#run;
    if (output !== null) recorder.goOnFrom(output);
    this.output.attach(recorder.write);
    this.calls?.begin(running, uplink);
    session.adopt(this.started, this.#run, { running, recorder, calls: this.calls });
  }
}

function isProgram({ tools }: HostState['sandbox'], tool: string): boolean {
  return (tool === 'python' || tool === 'node') && tools[tool].kernel?.running?.program !== undefined;
}

/** Its output is null where it begins anew. */
type RunToGoOn = Omit<CarriedRun, 'output'> & { output: CarriedRun['output'] | null };

/** The programs that the grant names go on as executions of their own, with nothing of their past but what they know. */
function forkedRuns(
  { sandbox, runs }: HostState,
  { claims, grantSha256: grant_sha256, snapshot }: RestoreGrant,
): RunToGoOn[] {
  return (snapshot.forks ?? []).flatMap(({ execution_id, as }) => {
    const run = runs.find(({ started }) => started.execution_id === execution_id);
    if (run === undefined || !isProgram(sandbox, run.started.tool) || run.started.tenant !== claims.tenant)
      return [];
    const started = {
      ...run.started,
      execution_id: as,
      session_id: claims.sid,
      jti: claims.jti,
      grant_sha256,
      seq: claims.seq,
      granted_at: new Date(claims.iat * 1000).toISOString(),
      started_at: new Date().toISOString(),
    };
    const stdin = { taken_bytes: 0, has_hole: false, waiting: [] };
    return [{ ...run, started, stdin, wall_ms: 0, output: null, hosts: [] }];
  });
}

/** What a program used before it was forked is counted where it was. */
function withoutUsage(state: HostState['sandbox'], forked: readonly string[]): HostState['sandbox'] {
  const calls = state.calls.map((call) => (forked.includes(call.tool) ? { ...call, cpu_ms: 0 } : call));
  return { ...state, calls };
}

/** A call goes on only in its own session: a copy of the session has none but programs that were forked. */
function runsToGoOn({ runs }: HostState, { claims, snapshot }: RestoreGrant): CarriedRun[] {
  if (snapshot.executions === 'stop') return [];
  return runs.filter(({ started }) => started.session_id === claims.sid && started.tenant === claims.tenant);
}
