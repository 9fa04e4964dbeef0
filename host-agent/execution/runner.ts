/** Runs the executions of one lane of a session, one after the other: journal, start, end, and then the next that waits. */
import { hash } from 'node:crypto';
import { type Failure, failure } from '../../shared/errors.ts';
import type { ExecutionOutcome } from '../../shared/execution.ts';
import type { GrantClaims, Relay } from '../../shared/grant.ts';
import { FIRST_PREVIOUS_SHA256 } from '../../shared/receipt.ts';
import { traceIdOf } from '../../shared/trace.ts';
import type { StartedEntry } from '../journal/entries.ts';
import type { Journal } from '../journal/journal.ts';
import type { ChainHead } from '../journal/state.ts';
import type { Log, LogFields } from '../logging/log.ts';
import type { RunningExecution, Sandbox } from '../sandbox/port.ts';
import type { CarriedRun } from './carried.ts';
import { checkExecute, type ExecuteRequest, type SessionBinding } from './grant-check.ts';
import type { HostFacts, ReceiptSigner } from './receipt.ts';
import { followExecution, type RunContext, type RunHooks, type RunParts, runExecution } from './run.ts';
import { StdinCredit } from './stdin-credit.ts';
import { StdinQueue } from './stdin-queue.ts';
import type { Turns } from './turns.ts';
import type { Uplink } from './uplink.ts';
import { type ExecuteCommand, type WaitingBudget, WaitingCommands } from './waiting-commands.ts';

export interface RunnerDependencies {
  journal: Journal;
  host: HostFacts;
  signer: ReceiptSigner;
  log: Log;
}

export interface LiveExecution extends RunParts {
  running: RunningExecution;
  stdin: StdinQueue;
}

interface CurrentExecution {
  executionId: string;
  started: StartedEntry;
  relay: Relay;
  requestId: string | undefined;
  /** Another host goes on with it. */
  hasMoved: boolean;
  /** From the moment that it runs. */
  live: LiveExecution | null;
  done: Promise<void>;
}

export interface RunnerOptions {
  binding: SessionBinding;
  /** Null where the sandbox is gone already: then nothing is ever started. */
  sandbox: Sandbox | null;
  uplink: Uplink;
  dependencies: RunnerDependencies;
  /** For what waits in all lanes of the session. */
  budget: WaitingBudget;
  /** Of all lanes: an end takes its place in the chain of receipts and is told, and then the next. */
  endings: Turns;
  /** A command that waited was refused after all. */
  onRefused: (claims: GrantClaims, refused: Failure) => void;
}

export class ExecutionRunner {
  readonly #options: RunnerOptions;
  readonly #waiting: WaitingCommands;
  #current: CurrentExecution | null = null;
  /** From before the journal entry of a start until just before its end is told. */
  #isBusy = false;
  /** Being journalled: not to be found in the journal yet, and not waiting any more. */
  #startingExecutionId: string | null = null;
  #isOver = false;
  #lastStart: Promise<unknown> = Promise.resolve();

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#waiting = new WaitingCommands(options.budget);
  }

  /** Settles when the execution is started, waits, or is refused. */
  async execute(command: ExecuteCommand): Promise<Failure | undefined> {
    if (this.#startingExecutionId !== null && this.#startingExecutionId === command.claims.exec)
      return undefined;
    if (!this.#isBusy) return this.#start(command);
    if (this.#waiting.push(command)) return undefined;
    return failure('queue_full', 'too many executions wait in this session');
  }

  /** Whether the end of this execution was not told yet. */
  isUnderWay(executionId: string): boolean {
    return this.#current?.executionId === executionId;
  }

  /** What runs, if it is this execution; whatever runs, for null. */
  live(executionId: string | null): LiveExecution | undefined {
    if (executionId !== null && !this.isUnderWay(executionId)) return undefined;
    return this.#current?.live ?? undefined;
  }

  /** Settles when nothing is being started, runs, or is being told. */
  async settled(): Promise<void> {
    await this.#lastStart;
    while (this.#current !== null) await this.#current.done;
  }

  /** What runs, as another host goes on with it; undefined where nothing does. */
  carry(stdinIsCarried: boolean): CarriedRun | undefined {
    const current = this.#current;
    if (current === null || current.live === null) return undefined;
    const { started, relay, live } = current;
    return {
      started,
      relay,
      wall_ms: live.wallMs(),
      output: live.recorder.carry(),
      stdin: live.stdin.carry(stdinIsCarried),
      hosts: [...(started.former_hosts ?? []), this.#options.dependencies.host.hostId],
    };
  }

  /** What runs has moved: its end here is none, and nothing is said of it. */
  handOff(): void {
    this.#isOver = true;
    if (this.#current !== null) this.#current.hasMoved = true;
  }

  /** Goes on with what ran at a checkpoint, and is in the journal as such. */
  adopt(
    started: StartedEntry,
    run: Omit<CarriedRun, 'output'>,
    call: Pick<RunParts, 'recorder' | 'calls'> & { running: RunningExecution },
  ): void {
    this.#isBusy = true;
    this.#follow(this.#newCurrent(started, run.relay), (context, hooks) =>
      followExecution(context, started, {
        ...call,
        formerWallMs: run.wall_ms,
        ...hooks,
        onRunning: (...args) => {
          hooks.onRunning(...args);
          this.#current?.live?.stdin.goOnFrom(run.stdin);
        },
      }),
    );
  }

  /** Nothing is started from now on. Settles when what runs has ended and was told. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#lastStart;
    await this.#current?.done;
  }

  #start(command: ExecuteCommand): Promise<Failure | undefined> {
    const start = this.#journalAndRun(command);
    this.#lastStart = start;
    return start;
  }

  async #journalAndRun({ claims, token, payload, requestId }: ExecuteCommand): Promise<Failure | undefined> {
    const { binding, sandbox, dependencies } = this.#options;
    if (sandbox === null || this.#isOver) return failure('sandbox_failed', 'the sandbox is gone');
    const checked = checkExecute(claims, binding, payload);
    if (!checked.ok) return checked;
    const started = startedEntry(claims, token, checked.value);
    this.#isBusy = true;
    this.#startingExecutionId = started.execution_id;
    const journaled = await dependencies.journal.started(started);
    this.#startingExecutionId = null;
    if (!journaled.ok) {
      this.#isBusy = false;
      return journaled;
    }
    const call = { sandbox, request: checked.value };
    const current = this.#newCurrent(started, checked.value.relay, requestId);
    this.#follow(current, (context, hooks) => runExecution(context, started, { ...call, ...hooks }));
    return undefined;
  }

  #newCurrent(started: StartedEntry, relay: Relay, requestId?: string): CurrentExecution {
    const { execution_id: executionId } = started;
    return { executionId, started, relay, requestId, hasMoved: false, live: null, done: Promise.resolve() };
  }

  #follow(
    current: CurrentExecution,
    run: (context: RunContext, hooks: RunHooks) => Promise<ExecutionOutcome | null>,
  ): void {
    const { log } = this.#options.dependencies;
    this.#current = current;
    current.done = this.#run(current, run).catch((error: unknown) => {
      const detail = error instanceof Error ? error.message : 'unknown';
      log.error({ event: 'execution_fault', execution_id: current.executionId, detail });
      this.#free(current);
    });
  }

  async #run(
    current: CurrentExecution,
    run: (context: RunContext, hooks: RunHooks) => Promise<ExecutionOutcome | null>,
  ): Promise<void> {
    const { uplink, dependencies, endings } = this.#options;
    const { journal, host, signer, log } = dependencies;
    const { started } = current;
    const chain = (): ChainHead =>
      journal.session(started.session_id)?.chain ?? { seq: 0, sha256: FIRST_PREVIOUS_SHA256 };
    const outcome = await run(
      { journal, host, signer, uplink, chain, endings },
      {
        onRunning: (running, parts) => {
          const credit = new StdinCredit(started.execution_id, uplink, () => this.#current === current);
          current.live = { running, stdin: new StdinQueue(running, credit.taken), ...parts };
        },
        onTelling: () => this.#free(current),
        hasMoved: () => current.hasMoved,
      },
    );
    if (outcome === null) {
      this.#free(current);
      return;
    }
    // What was told goes out at the end of this turn: nobody waits for the line.
    setImmediate(() => {
      log.info({
        event: 'execution_finished',
        session_id: started.session_id,
        execution_id: started.execution_id,
        tool: started.tool,
        status: outcome.status,
        duration_ms: outcome.duration_ms,
        bytes: outcome.stdout_bytes + outcome.stderr_bytes,
        ...requestFields(current.requestId),
      });
    });
  }

  #free(ended: CurrentExecution): void {
    if (this.#current !== ended) return;
    this.#current = null;
    this.#isBusy = false;
    void this.#startWaiting();
  }

  async #startWaiting(): Promise<void> {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const isExpired = next.claims.exp * 1000 <= Date.now();
      const refused = isExpired
        ? failure('grant_expired', 'exp passed while another execution ran')
        : await this.#start(next);
      if (refused === undefined) return;
      this.#options.onRefused(next.claims, refused);
    }
  }
}

function startedEntry(claims: GrantClaims, token: string, request: ExecuteRequest): StartedEntry {
  return {
    kind: 'started',
    session_id: claims.sid,
    epoch: claims.epoch,
    execution_id: request.executionId,
    jti: claims.jti,
    grant_sha256: hash('sha256', token),
    tenant: claims.tenant,
    seq: claims.seq,
    tool: request.tool,
    tool_version: request.toolVersion,
    args_sha256: claims.args_sha256,
    image: claims.image,
    limits: claims.limits,
    granted_at: new Date(claims.iat * 1000).toISOString(),
    started_at: new Date().toISOString(),
  };
}

/** What finds the request in the logs of the edge, and its trace. */
function requestFields(requestId: string | undefined): Pick<LogFields, 'request_id' | 'trace_id'> {
  const traceId = requestId === undefined ? undefined : traceIdOf(requestId);
  return requestId === undefined || traceId === undefined ? {} : { request_id: requestId, trace_id: traceId };
}
