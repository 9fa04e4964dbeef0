/** One living sandbox: its runsc process, its link to the guest, its tools, and its end. */
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import { failure, type Outcome, success } from '../../shared/errors.ts';
import type { CgroupUsage } from '../cgroup/cgroups.ts';
import type { GuestLink } from '../guest-link/guest-link.ts';
import type { BoundedOutput } from '../process/bounded-output.ts';
import type { SpawnedProcess } from '../process/spawn.ts';
import type { CarriedCall } from './checkpoint/carried.ts';
import { type RunningCall, takeCheckpoint } from './checkpoint/checkpoint.ts';
import { Execution, type ExecutionRequest } from './execution.ts';
import type { SandboxFiles } from './files/port.ts';
import type { Freezer } from './freezer.ts';
import type { SandboxOwner } from './held/held-state.ts';
import type { Rest } from './held/rest.ts';
import { MemoryKills } from './memory-kills.ts';
import type {
  Checkpoint,
  LostReason,
  OutputSink,
  RunningExecution,
  Sandbox,
  ToolCall,
  WorkspaceWish,
} from './port.ts';
import type { GuestPrograms } from './programs/guest-programs.ts';
import { runTool, type ToolPlace } from './tools/tool.ts';
import type { SandboxTools } from './tools/tools.ts';

/** For the supervisor to end by itself after its input ended. */
const EXIT_PATIENCE_MS = 300;
/** A sandbox whose guest no longer speaks is killed, not waited for. */
const BROKEN_LINK_PATIENCE_MS = 1_000;
/** Of a sandbox that stood still, on a machine with much to do. */
const ANSWER_TIMEOUT_MS = 2_000;
/** For the kernel to stop processes that are in the middle of something. */
const FREEZE_PATIENCE_MS = 1_000;

export interface SandboxParts {
  id: string;
  process: SpawnedProcess;
  stderr: BoundedOutput;
  link: GuestLink;
  freezer: Freezer;
  /** Shared with the tools: what is written into it holds for all that they start from then on. */
  place: ToolPlace;
  tools: SandboxTools;
  files: SandboxFiles;
  programs: GuestPrograms;
  rest: Rest;
  /** Digest of what the host lays into it, id of its root file, and the user of everything in it. */
  guest: string;
  root: string;
  userId: number;
  /** How long a program waits for its tools before its sandbox is frozen. */
  restAfterMs: number;
  host: SandboxHost;
}

/** What a sandbox needs of the host it lives on. */
export interface SandboxHost {
  usage(): CgroupUsage | undefined;
  resetPeak(): void;
  /** SIGKILL to everything in the sandbox's control group. */
  kill(): void;
  /** Whether every process of the sandbox stands still. */
  isFrozen(): boolean;
  /** Whatever the freezer says. */
  freeze(): void;
  thaw(): void;
  /** Writes a checkpoint, after which it goes on. */
  save(imageDir: string): Promise<Outcome<null>>;
  /** Removes what is left of the sandbox; called once, after its end. */
  cleanUp(end: SandboxEnd): Promise<void>;
}

const REST_PATIENCE_MS = 3_000;
const REST_LOOK_MS = 50;

export interface SandboxEnd {
  reason: LostReason;
  /** Of runsc, where it did not start the sandbox. */
  exitCode: number | null;
  /** Last line that runsc or the supervisor wrote to its standard error. */
  lastLine: () => string;
}

export class RunscSandbox implements Sandbox {
  readonly id: string;
  readonly files: SandboxFiles;
  readonly programs: GuestPrograms;
  readonly link: GuestLink;
  readonly lost: Promise<{ reason: LostReason }>;
  readonly #parts: SandboxParts;
  readonly #cleanedUp: Promise<void>;
  readonly #executions = new Map<Execution, RunningCall>();
  readonly #memoryKills = new MemoryKills();
  #destroying = false;
  #isPaused = false;
  #lostReason: LostReason | undefined;
  #egress: { readonly bytes: number } | undefined;
  #toldEgressBytes = 0;
  #lastUsage: CgroupUsage = { oomKills: 0, cpuMs: 0, peakMemoryBytes: 0 };

  constructor(parts: SandboxParts) {
    this.id = parts.id;
    this.files = parts.files;
    this.programs = parts.programs;
    this.link = parts.link;
    this.#parts = parts;
    parts.rest.unless(() => this.#executions.size > 0 || this.#isPaused);
    const ended = this.#watch();
    this.lost = ended.then(({ reason }) => ({ reason }));
    this.#cleanedUp = ended.then((end) => parts.host.cleanUp(end));
    // Who waits for it in vain asks for its end, which kills it too.
    void this.#killWhenLinkBreaks().catch(() => undefined);
  }

  execute(call: ToolCall, sink: OutputSink): RunningExecution {
    const { tools, restAfterMs } = this.#parts;
    const takesStdin = call.stdin ?? true;
    return this.#begin(
      { tool: call.tool, takesStdin },
      {
        timeoutMs: call.timeoutMs,
        sink,
        program: call.program,
        restAfterMs,
        run: (io) => runTool(tools[call.tool], call, io),
      },
    );
  }

  /** A call of a checkpoint goes on; its deadline does so when it is resumed. */
  goOnWith(
    call: CarriedCall,
    { sink, program, run }: Pick<ExecutionRequest, 'sink' | 'program' | 'run'>,
  ): Execution {
    const execution = this.#begin(
      { tool: call.tool, takesStdin: call.takes_stdin },
      {
        timeoutMs: call.timeout_left_ms,
        formerCpuMs: call.cpu_ms,
        sink,
        program,
        restAfterMs: this.#parts.restAfterMs,
        run,
      },
    );
    execution.pause();
    return execution;
  }

  async checkpoint(imageDir: string, workspace?: WorkspaceWish): Promise<Outcome<Checkpoint>> {
    const { host, ...parts } = this.#parts;
    return takeCheckpoint(
      {
        ...parts,
        runningCalls: () => [...this.#executions.values()],
        isPaused: () => this.#isPaused,
        thaw: () => host.thaw(),
        freeze: () => host.freeze(),
        save: (directory) => host.save(directory),
        destroy: () => this.#end({ isAtOnce: true }),
      },
      imageDir,
      workspace,
    );
  }

  #begin(call: Omit<RunningCall, 'execution'>, request: ExecutionRequest): Execution {
    const { freezer } = this.#parts;
    let letSleep = freezer.hold();
    const execution = new Execution(
      {
        begin: () => this.#beginCall(),
        usage: () => this.#usage(),
        takeEgressBytes: () => this.#takeEgressBytes(),
        claimMemoryKill: () => this.#memoryKills.claim(this.#usage().oomKills),
        abandon: () => void this.destroy().catch(() => undefined),
        stopping: () => this.#runFor(execution),
        sleeper: {
          trySleep: async () => {
            letSleep();
            const sleeps = await freezer.freezeNow();
            if (!sleeps) letSleep = freezer.hold();
            return sleeps;
          },
          wake: () => {
            letSleep();
            letSleep = freezer.hold();
          },
        },
      },
      request,
    );
    // Kept here and not by a promise: one that lives as long as the sandbox would keep every execution alive.
    this.#executions.set(execution, { ...call, execution });
    void execution.finished.then(() => {
      this.#executions.delete(execution);
      letSleep();
    });
    if (this.#lostReason !== undefined) execution.sandboxLost(this.#lostReason);
    if (this.#isPaused) execution.pause();
    return execution;
  }

  keepFor(owner: SandboxOwner): void {
    this.#parts.rest.keepFor(owner);
  }

  /** What a call that has just ended leaves to be done, such as the shell of the next one, takes a moment. */
  async comeToRest(): Promise<boolean> {
    const { freezer } = this.#parts;
    const untilMs = performance.now() + REST_PATIENCE_MS;
    for (;;) {
      await freezer.lookNow();
      if (this.isAtRest) return true;
      if (this.#destroying || this.#lostReason !== undefined || performance.now() > untilMs) return false;
      await wait(REST_LOOK_MS);
      // It may be frozen, and nothing be written of it.
      freezer.touch();
    }
  }

  /** A successor of its agent could go on with it as it is. */
  get isAtRest(): boolean {
    return this.#parts.freezer.frozen && this.#parts.rest.isWritten;
  }

  standStill(): () => void {
    return this.#parts.freezer.standStill();
  }

  async pause(): Promise<Outcome<null>> {
    const { freezer, host } = this.#parts;
    // What is being stopped runs until it is; that is bounded.
    await Promise.all([...this.#executions.keys()].map(({ stopped }) => stopped));
    if (this.#destroying || this.#lostReason !== undefined) {
      return failure('sandbox_failed', 'the sandbox is gone');
    }
    this.#isPaused = true;
    for (const execution of this.#executions.keys()) execution.pause();
    const untilMs = performance.now() + FREEZE_PATIENCE_MS;
    let isFrozen = freezer.pause() && host.isFrozen();
    while (!isFrozen && freezer.frozen && performance.now() < untilMs) {
      await wait(1);
      isFrozen = host.isFrozen();
    }
    if (isFrozen) {
      // What the guest wrote before lies in its pipe: it is read in the next turn.
      await turn();
      await turn();
      return success(null);
    }
    this.resume();
    return failure('sandbox_failed', 'the kernel did not stop the sandbox');
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#parts.freezer.resume();
    for (const execution of this.#executions.keys()) execution.resume();
  }

  /** A program that is stopped while everything stands still runs as long as that takes, and the rest with it. */
  #runFor(execution: Execution): void {
    const { freezer } = this.#parts;
    if (!this.#isPaused) return;
    freezer.resume();
    void execution.finished.then(() => {
      if (this.#isPaused && !this.#destroying) freezer.pause();
    });
  }

  destroy(): Promise<void> {
    return this.#end({ isAtOnce: false });
  }

  /** `isAtOnce`: nothing of it runs again, for it goes on elsewhere. */
  async #end({ isAtOnce }: { isAtOnce: boolean }): Promise<void> {
    const { link, process, host, freezer } = this.#parts;
    if (!this.#destroying) {
      this.#destroying = true;
      if (isAtOnce) host.kill();
      freezer.dispose();
      link.close();
      await Promise.race([process.exited, wait(EXIT_PATIENCE_MS)]);
      host.kill();
      // Should something of it live on, such as a runsc that is starting it, that goes too.
      await Promise.race([process.exited, wait(EXIT_PATIENCE_MS)]);
      process.kill('SIGKILL');
    }
    await this.#cleanedUp;
  }

  /** Whether its guest speaks: one that is killed while it stands still dies only when it is woken. */
  async answers(): Promise<boolean> {
    const answered = await this.link.ping(ANSWER_TIMEOUT_MS);
    return answered.ok;
  }

  /** The way out that it has from now on. */
  connected(egress: { readonly bytes: number }): void {
    this.#egress = egress;
  }

  #takeEgressBytes(): number {
    const bytes = this.#egress?.bytes ?? 0;
    const since = bytes - this.#toldEgressBytes;
    this.#toldEgressBytes = bytes;
    return since;
  }

  /** Of one that was made ahead of its session, before its first call: what programs find from now on. */
  handOver(environment: readonly string[]): void {
    const { place, tools } = this.#parts;
    if (environment.join('\0') === place.environment.join('\0')) return;
    place.environment = environment;
    for (const tool of [tools.python, tools.node, tools.shell]) tool.renew();
    void this.warm();
  }

  /** Makes the tools ready; a call that comes earlier waits for its own tool only. */
  async warm(): Promise<void> {
    const letSleep = this.#parts.freezer.hold();
    await Promise.allSettled(Object.values(this.#parts.tools).map((tool) => tool.warm()));
    letSleep();
  }

  async #watch(): Promise<SandboxEnd> {
    const { process, stderr, link, freezer } = this.#parts;
    const exit = await process.exited;
    link.close();
    // The control group is ours, so its counters outlive the sandbox. Only what is new in them counts.
    const killsBefore = this.#lastUsage.oomKills;
    let oom = false;
    try {
      freezer.dispose();
      oom = this.#usage().oomKills > killsBefore;
    } catch {
      // Out of descriptors the group says nothing; that the sandbox has ended must be told all the same.
    }
    const reason = this.#destroying ? 'destroyed' : oom ? 'oom' : 'crashed';
    this.#lostReason = reason;
    for (const execution of this.#executions.keys()) execution.sandboxLost(reason);
    const lastLine = (): string => stderr.text().trim().split('\n').at(-1) ?? '';
    return { reason, exitCode: exit.exitCode, lastLine };
  }

  #beginCall(): CgroupUsage {
    const othersRun = this.#executions.size > 0;
    if (!othersRun) this.#parts.host.resetPeak();
    const usage = this.#usage();
    this.#memoryKills.begin(usage.oomKills, othersRun);
    return usage;
  }

  /** What was read last stays the answer once the control group is gone. */
  #usage(): CgroupUsage {
    this.#lastUsage = this.#parts.host.usage() ?? this.#lastUsage;
    return this.#lastUsage;
  }

  async #killWhenLinkBreaks(): Promise<void> {
    const { link, process, host } = this.#parts;
    await link.closed;
    await Promise.race([process.exited, wait(BROKEN_LINK_PATIENCE_MS)]);
    host.kill();
  }
}
