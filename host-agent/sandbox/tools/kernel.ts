/** A tool that runs cells: one kernel that lives as long as the sandbox, replaced when it dies. */
import { constants } from 'node:os';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import type { CarriedKernel } from '../../guest-link/carried.ts';
import { type GuestFailure, type GuestResult, succeed } from '../../guest-link/failure.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { Kernel, type KernelOutcome, type KernelProgram } from '../../guest-link/kernel.ts';
import {
  failedEnd,
  guestFailureEnd,
  NO_STDIN,
  notRunning,
  type RunningTool,
  type Tool,
  type ToolEnd,
  type ToolIo,
  toolEnd,
} from './tool.ts';

const KERNEL_READY_TIMEOUT_MS = 30_000;
/** From the interrupt to the kill of the kernel. */
const GRACE_MS = { timeout: 1_000, interrupt: 2_000 } as const;

export interface KernelLanguage {
  /** The interpreter, as the path has it. */
  interpreter: string;
  start(readyTimeoutMs: number): Promise<GuestResult<Kernel>>;
  /** Throws where they do not fit the tool's schema. */
  cellOf(argumentsJson: unknown): {
    code: string;
    program?: Pick<KernelProgram, 'tools' | 'arguments'> | undefined;
  };
  /** Whether a kernel is made ready before the first call. */
  warm: boolean;
}

/** Stands for one that died before the checkpoint. */
const LOST_KERNEL = Symbol('lost kernel');

export interface CarriedKernelTool {
  kernel: CarriedKernel | null;
  had_state: boolean;
  lost_state: boolean;
}

export class KernelTool implements Tool {
  readonly #language: KernelLanguage;
  #starting: Promise<GuestResult<Kernel>> | undefined;
  /** What `#starting` resolved to. */
  #started: GuestResult<Kernel> | undefined;
  /** A kernel that ran cells died since the last call: that call must say that variables are gone. */
  #usedKernel: Kernel | typeof LOST_KERNEL | undefined;

  constructor(language: KernelLanguage) {
    this.#language = language;
  }

  async warm(): Promise<void> {
    if (this.#language.warm) await this.#kernel();
  }

  /** A variable may be one that only the start of an interpreter heeds, so another is started. */
  renew(): void {
    const former = this.#starting;
    this.#starting = this.#started = undefined;
    void former?.then((kernel) => (kernel.ok ? kernel.value.dispose() : undefined));
  }

  run(argumentsJson: unknown, { sink, stdin, program }: ToolIo): RunningTool {
    const { code, program: given } = this.#language.cellOf(argumentsJson);
    const asProgram =
      given === undefined || program === undefined ? {} : { program: { ...program, ...given } };
    return this.#runIn(this.#kernel(), stdin, (kernel) =>
      kernel.execute({ code, onOutput: sink, stdin, ...asProgram }),
    );
  }

  /** No kernel is starting any more when it resolves. */
  async settled(): Promise<void> {
    await this.#starting;
  }

  /** The channel of the kernel, once there is one. */
  get channelId(): number | undefined {
    return this.#living?.channelId;
  }

  /** How it stands; only while the guest stands still. */
  carry(): CarriedKernelTool {
    const kernel = this.#living;
    const used = this.#usedKernel;
    return { kernel: kernel?.carry() ?? null, had_state: used !== undefined, lost_state: used !== kernel };
  }

  /** Goes on from a checkpoint; gives the cell that runs there, whose output goes to the sink. */
  adopt(link: GuestLink, carried: CarriedKernelTool, io: ToolIo | undefined): RunningTool | undefined {
    const kernel = carried.kernel === null ? undefined : Kernel.adopt(link, carried.kernel, io);
    if (kernel !== undefined) {
      this.#started = succeed(kernel);
      this.#starting = Promise.resolve(this.#started);
    }
    if (carried.had_state) this.#usedKernel = carried.lost_state ? LOST_KERNEL : kernel;
    const outcome = kernel?.outcome;
    if (kernel === undefined || outcome === undefined) return undefined;
    return this.#runIn(Promise.resolve(succeed(kernel)), io?.stdin === true, () => outcome);
  }

  #runIn(
    started: Promise<GuestResult<Kernel>>,
    stdin: boolean,
    begin: (kernel: Kernel) => Promise<GuestResult<KernelOutcome>>,
  ): RunningTool {
    const stopped = Promise.withResolvers<'stopped'>();
    const begun = Promise.withResolvers<Kernel | undefined>();
    let running: Kernel | undefined;

    const execute = async (): Promise<ToolEnd> => {
      const kernel = await Promise.race([started, stopped.promise]);
      if (kernel === 'stopped') return toolEnd({ status: 'interrupted' });
      if (!kernel.ok) return this.#notStarted(kernel.failure);
      const lostBefore = this.#usedKernel !== undefined && this.#usedKernel !== kernel.value;
      running = kernel.value;
      this.#usedKernel = running;
      const executing = begin(running);
      begun.resolve(running);
      const outcome = await executing;
      if (!running.alive) this.#usedKernel = undefined;
      const end = outcome.ok
        ? kernelEnd(outcome.value)
        : guestFailureEnd(outcome.failure, { stateLost: true });
      return { ...end, stateLost: end.stateLost || lostBefore || !running.alive };
    };

    return {
      ended: execute().finally(() => begun.resolve(undefined)),
      writeStdin: async (bytes, eof) => {
        if (!stdin) return NO_STDIN(bytes, eof);
        const kernel = await begun.promise;
        return kernel === undefined ? notRunning() : writeKernelStdin(kernel, bytes, eof);
      },
      answer: async (answer) => (await running?.answer(answer)) ?? false,
      stop: async (cause) => {
        stopped.resolve('stopped');
        await running?.stop(GRACE_MS[cause]);
      },
    };
  }

  get #living(): Kernel | undefined {
    return this.#started?.ok === true && this.#started.value.alive ? this.#started.value : undefined;
  }

  /** The living kernel, the one that is starting, or a new one. */
  #kernel(): Promise<GuestResult<Kernel>> {
    const dead = this.#started !== undefined && !(this.#started.ok && this.#started.value.alive);
    if (this.#starting !== undefined && !dead) return this.#starting;
    this.#started = undefined;
    const starting = this.#language.start(KERNEL_READY_TIMEOUT_MS);
    this.#starting = starting;
    void starting.then((kernel) => {
      if (this.#starting === starting) this.#started = kernel;
    });
    return starting;
  }

  #notStarted(problem: GuestFailure): ToolEnd {
    if (problem.reason === 'spawn_failed' && problem.errno === 'ENOENT')
      return failedEnd('InterpreterMissing', `the image has no ${this.#language.interpreter}`);
    return guestFailureEnd(problem);
  }
}

async function writeKernelStdin(kernel: Kernel, bytes: Uint8Array, eof: boolean): Promise<Outcome<null>> {
  if (bytes.length > 0) {
    const written = await kernel.writeStdin(bytes);
    if (!written.ok) return failure('execution_not_running', written.failure.message);
  }
  const closed = eof ? await kernel.closeStdin() : undefined;
  if (closed?.ok === false) return failure('execution_not_running', closed.failure.message);
  return success(null);
}

function kernelEnd(outcome: KernelOutcome): ToolEnd {
  return toolEnd({
    status: outcome.status === 'died' ? 'failed' : outcome.status,
    exitCode: exitCodeOf(outcome),
    signal: outcome.signal,
    value: outcome.value,
    results: outcome.results.map(({ mime, data }) => ({ mime, data })),
    error: outcome.error,
    stateLost: outcome.status === 'died',
  });
}

/** As a program of that code would end: 0, 1 for an exception, 128 + n for a signal. A cell that we stopped has none. */
function exitCodeOf({ status, exitCode, signal }: KernelOutcome): number | null {
  if (signal !== null) return 128 + constants.signals[signal];
  if (exitCode !== null || status === 'interrupted') return exitCode;
  return status === 'succeeded' ? 0 : 1;
}
