/** The python tool: one kernel that lives as long as the sandbox, replaced when it dies. */
import { constants } from 'node:os';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { PythonArgumentsSchema } from '../../../shared/tool.ts';
import type { GuestResult } from '../../guest-link/failure.ts';
import type { GuestLink } from '../../guest-link/guest-link.ts';
import { PythonKernel, type PythonOutcome } from '../../guest-link/python-kernel.ts';
import {
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
/** From KeyboardInterrupt to the kill of the kernel. */
const GRACE_MS = { timeout: 1_000, interrupt: 2_000 } as const;

export interface KernelPlace {
  cwd: string;
  environment: readonly string[];
}

export class PythonTool implements Tool {
  readonly #link: GuestLink;
  readonly #place: KernelPlace;
  #starting: Promise<GuestResult<PythonKernel>> | undefined;
  /** What `#starting` resolved to. */
  #started: GuestResult<PythonKernel> | undefined;
  /** A kernel that ran cells died since the last call: that call must say that variables are gone. */
  #usedKernel: PythonKernel | undefined;

  constructor(link: GuestLink, place: KernelPlace) {
    this.#link = link;
    this.#place = place;
  }

  async warm(): Promise<void> {
    await this.#kernel();
  }

  run(argumentsJson: unknown, { sink, stdin }: ToolIo): RunningTool {
    const { code } = PythonArgumentsSchema.parse(argumentsJson);
    const stopped = Promise.withResolvers<'stopped'>();
    const begun = Promise.withResolvers<PythonKernel | undefined>();
    let running: PythonKernel | undefined;
    const started = this.#kernel();

    const execute = async (): Promise<ToolEnd> => {
      const kernel = await Promise.race([started, stopped.promise]);
      if (kernel === 'stopped') return toolEnd({ status: 'interrupted' });
      if (!kernel.ok) return guestFailureEnd(kernel.failure);
      const lostBefore = this.#usedKernel !== undefined && this.#usedKernel !== kernel.value;
      running = kernel.value;
      this.#usedKernel = running;
      const executing = running.execute({ code, onOutput: sink, stdin });
      begun.resolve(running);
      const outcome = await executing;
      if (!running.alive) this.#usedKernel = undefined;
      const end = outcome.ok
        ? pythonEnd(outcome.value)
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
      stop: async (cause) => {
        stopped.resolve('stopped');
        await running?.stop(GRACE_MS[cause]);
      },
    };
  }

  /** The living kernel, the one that is starting, or a new one. */
  #kernel(): Promise<GuestResult<PythonKernel>> {
    const dead = this.#started !== undefined && !(this.#started.ok && this.#started.value.alive);
    if (this.#starting !== undefined && !dead) return this.#starting;
    this.#started = undefined;
    this.#starting = this.#startKernel();
    return this.#starting;
  }

  async #startKernel(): Promise<GuestResult<PythonKernel>> {
    const options = { ...this.#place, readyTimeoutMs: KERNEL_READY_TIMEOUT_MS };
    const started = await PythonKernel.start(this.#link, options);
    this.#started = started;
    return started;
  }
}

async function writeKernelStdin(
  kernel: PythonKernel,
  bytes: Uint8Array,
  eof: boolean,
): Promise<Outcome<null>> {
  if (bytes.length > 0) {
    const written = await kernel.writeStdin(bytes);
    if (!written.ok) return failure('execution_not_running', written.failure.message);
  }
  void eof;
  return success(null);
}

function pythonEnd(outcome: PythonOutcome): ToolEnd {
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

/** As `python3 -c` would end: 0, 1 for an exception, 128 + n for a signal. A cell that we stopped has none. */
function exitCodeOf({ status, exitCode, signal }: PythonOutcome): number | null {
  if (signal !== null) return 128 + constants.signals[signal];
  if (exitCode !== null || status === 'interrupted') return exitCode;
  return status === 'succeeded' ? 0 : 1;
}
