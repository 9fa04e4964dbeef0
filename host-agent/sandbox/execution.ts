/** One call running in a sandbox: its deadline, its stop in steps, and its outcome, which always comes. */
import { setTimeout as wait } from 'node:timers/promises';
import type { CgroupUsage } from '../cgroup/cgroups.ts';
import { toolOutcome } from './outcome.ts';
import { OutputGate } from './output-gate.ts';
import type {
  LostReason,
  OutputSink,
  ProgramEvents,
  ProgramListener,
  RunningExecution,
  ToolOutcome,
} from './port.ts';
import { DEFAULT_REST_AFTER_MS, NEVER_SLEEPS, ProgramRest, type Sleeper } from './program-rest.ts';
import { RunClock } from './run-clock.ts';
import { failedEnd, type RunningTool, type StopCause, type ToolEnd, toolEnd } from './tools/tool.ts';

/**
 * After a stop: a reader that takes nothing may hold back the last output until `drainMs`, and a guest that shows no
 * end by `abandonMs` is killed with its sandbox. The edge waits 4 s past a deadline, so a timeout is told before.
 */
export const STOP_PATIENCE = {
  timeout: { drainMs: 1_500, abandonMs: 3_000 },
  interrupt: { drainMs: 2_400, abandonMs: 3_800 },
} as const;

export interface ExecutionHost {
  /** What the sandbox had used when the call began; its peak of memory is counted anew where no other call runs. */
  begin(): CgroupUsage;
  usage(): CgroupUsage;
  /** What went through the way out since this was asked before. */
  takeEgressBytes(): number;
  /** Whether a process was killed for memory, and no other call has ended by it. */
  claimMemoryKill(): boolean;
  /** Kills the sandbox because its guest does not obey. */
  abandon(): void;
  /** The program is about to be stopped, for which it has to run. */
  stopping?(): void;
  sleeper?: Sleeper;
}

export interface ExecutionRequest {
  timeoutMs: number;
  /** Of the same call, elsewhere and before. */
  formerCpuMs?: number;
  sink: OutputSink;
  /** Of a program. */
  program?: ProgramListener | undefined;
  restAfterMs?: number;
  run: (io: { sink: OutputSink; program?: ProgramEvents }) => RunningTool;
}

export class Execution implements RunningExecution {
  readonly finished: Promise<ToolOutcome>;
  readonly #host: ExecutionHost;
  readonly #before: CgroupUsage;
  readonly #gate: OutputGate;
  readonly #tool: RunningTool;
  readonly #clock: RunClock;
  readonly #rest: ProgramRest | undefined;
  readonly #ending = Promise.withResolvers<void>();
  readonly #lost = Promise.withResolvers<LostReason>();
  #cause: StopCause | undefined;
  #stopped: Promise<void> = Promise.resolve();
  #ended = false;
  #sandboxGone = false;

  constructor(host: ExecutionHost, request: ExecutionRequest) {
    const { timeoutMs, formerCpuMs = 0, sink, run, program, restAfterMs } = request;
    this.#host = host;
    this.#gate = new OutputGate(sink);
    const usage = host.begin();
    this.#before = { ...usage, cpuMs: usage.cpuMs - formerCpuMs };
    this.#clock = new RunClock(timeoutMs, () => this.#stop('timeout'));
    this.#rest =
      program === undefined
        ? undefined
        : new ProgramRest({
            clock: this.#clock,
            sleeper: host.sleeper ?? NEVER_SLEEPS,
            afterMs: restAfterMs ?? DEFAULT_REST_AFTER_MS,
            listener: program,
          });
    this.#tool = run(this.#io(program));
    this.finished = this.#follow();
  }

  #io(program: ProgramListener | undefined): { sink: OutputSink; program?: ProgramEvents } {
    const rest = this.#rest;
    if (program === undefined || rest === undefined) return { sink: this.#gate.pass };
    return {
      sink: (stream, bytes) => {
        rest.stirs();
        return this.#gate.pass(stream, bytes);
      },
      program: {
        onCall: (call) => {
          rest.goesOn();
          program.onCall(call);
        },
        onWaiting: (rests) => rest.waits(rests && this.#cause === undefined),
      },
    };
  }

  get leftMs(): number {
    return this.#clock.leftMs;
  }

  answer: RunningExecution['answer'] = async (answer) => {
    if (this.#ended) return false;
    this.#rest?.goesOn();
    return (await this.#tool.answer?.(answer)) ?? false;
  };

  writeStdin: RunningExecution['writeStdin'] = (bytes, eof) => this.#tool.writeStdin(bytes, eof);

  interrupt(): void {
    this.#stop('interrupt');
  }

  /** As at its deadline, where a command gets no time. */
  kill(): void {
    this.#stop('timeout');
  }

  get pausedMs(): number {
    return this.#clock.pausedMs;
  }

  get timeoutLeftMs(): number {
    return this.#clock.leftMs;
  }

  get cpuMs(): number {
    return Math.max(0, this.#host.usage().cpuMs - this.#before.cpuMs);
  }

  /** Settles when no stop is under way: what is being stopped has to run for it. */
  get stopped(): Promise<void> {
    return this.#cause === undefined ? Promise.resolve() : this.finished.then(() => undefined);
  }

  pause(): void {
    this.#clock.pause();
  }

  resume(): void {
    this.#clock.resume();
  }

  sandboxLost(reason: LostReason): void {
    this.#sandboxGone = true;
    this.#lost.resolve(reason);
  }

  async #follow(): Promise<ToolOutcome> {
    const end = await this.#end();
    this.#ended = true;
    this.#ending.resolve();
    this.#rest?.goesOn();
    await this.#stopped;
    this.#clock.stop();
    const lost = end.status === 'lost' || this.#sandboxGone ? await this.#lost.promise : undefined;
    return toolOutcome({
      end,
      cause: this.#cause,
      lost,
      before: this.#before,
      after: this.#host.usage(),
      egressBytes: this.#host.takeEgressBytes(),
      claimMemoryKill: () => this.#host.claimMemoryKill(),
    });
  }

  async #end(): Promise<ToolEnd> {
    const gone = this.#lost.promise.then(() => toolEnd({ status: 'lost', stateLost: true }));
    try {
      return await Promise.race([this.#tool.ended, gone]);
    } catch {
      return failedEnd('InternalError', 'the host failed to follow the program');
    }
  }

  /** The first cause counts; a deadline during an interrupt adds nothing, its kill is under way. */
  #stop(cause: StopCause): void {
    if (this.#ended || this.#cause !== undefined) return;
    this.#cause = cause;
    this.#host.stopping?.();
    this.#rest?.goesOn();
    this.#stopped = this.#stopInSteps(cause);
  }

  /** Resolves when the program and what it started are gone, at the latest with the sandbox. */
  async #stopInSteps(cause: StopCause): Promise<void> {
    const { drainMs, abandonMs } = STOP_PATIENCE[cause];
    const stopped = Promise.race([
      Promise.all([this.#tool.stop(cause).catch(() => undefined), this.#ending.promise]),
      this.#lost.promise,
    ]);
    const overAfter = (ms: number): Promise<boolean> =>
      Promise.race([stopped.then(() => true), wait(ms, false, { ref: false })]);
    if (await overAfter(drainMs)) return;
    this.#gate.open();
    if (await overAfter(abandonMs - drainMs)) return;
    this.#sandboxGone = true;
    this.#host.abandon();
  }
}
