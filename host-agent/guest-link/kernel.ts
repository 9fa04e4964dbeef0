/** A language kernel of a sandbox: one process that keeps its variables from cell to cell. */
import { type CallAnswer, MAX_CALLS_OUTSTANDING, type ProgramTool } from '../../shared/code-mode.ts';
import type { CarriedKernel } from './carried.ts';
import type { Channel, OutputSink } from './channel.ts';
import { type Deferred, deferred, within } from './deferred.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import { MAX_WAITING_BYTES } from './input-window.ts';
import {
  encodeKernelRequest,
  type KernelMessage,
  KernelMessages,
  type KernelResult,
  type KernelToolCall,
  protocol,
} from './kernel-messages.ts';

const CONFIRM_TIMEOUT_MS = 10_000;
const INTERRUPT_INTERVAL_MS = 1_000;

export interface KernelOutcome {
  /** `died`: the kernel's process ended, and with it the variables. */
  readonly status: 'succeeded' | 'failed' | 'interrupted' | 'died';
  /** Of the cell that called for exit, or of the process that died. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Ends with a mark that says so where it is not whole. */
  readonly value: string | null;
  readonly error: { readonly name: string; readonly message: string; readonly traceback: string } | null;
  readonly results: readonly { readonly mime: string; readonly data: string }[];
  readonly cpuMs: number;
}

export interface KernelPlace {
  readonly cwd: string;
  readonly environment: readonly string[];
  readonly readyTimeoutMs: number;
}

export interface KernelStart extends KernelPlace {
  /** The interpreter with its arguments, the last of them the kernel's script. */
  readonly argv: readonly string[];
}

export interface KernelCell {
  readonly code: string;
  readonly onOutput: OutputSink;
  /** Whether `writeStdin` may reach the cell; without it the cell's input is at its end at once. */
  readonly stdin?: boolean;
  /** Of a cell that may call tools. */
  readonly program?: KernelProgram | undefined;
}

export interface KernelProgram {
  readonly tools: readonly ProgramTool[];
  /** What it finds as `tools.arguments`. */
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
  readonly onCall: (call: Pick<KernelToolCall, 'call' | 'name' | 'arguments'>) => void;
  readonly onWaiting: (rests: boolean) => void;
}

const STATUS = { ok: 'succeeded', error: 'failed', interrupted: 'interrupted' } as const;

function outcomeOf({ status, exitCode, value, error, results, cpuMs }: KernelResult): KernelOutcome {
  return { status: STATUS[status], exitCode, signal: null, value, error, results, cpuMs };
}

function diedOutcome(exit: { exitCode: number | null; signal: NodeJS.Signals | null }): KernelOutcome {
  const end = exit.signal === null ? `exit code ${exit.exitCode}` : exit.signal;
  const message = `the interpreter ended (${end}); its variables are lost`;
  return {
    status: 'died',
    ...exit,
    value: null,
    error: { name: 'KernelDied', message, traceback: '' },
    results: [],
    cpuMs: 0,
  };
}

/** Of a kernel that was never ready. A shell that finds no interpreter to start ends with 127. */
function endedEarly({ exitCode }: KernelOutcome): GuestResult<never> {
  return exitCode === 127
    ? fail('spawn_failed', 'there is no such interpreter', 'ENOENT')
    : fail('channel_ended', 'the kernel ended before it was ready');
}

interface RunningCell {
  readonly id: string;
  readonly result: Deferred<GuestResult<KernelOutcome>>;
  /** Settles once the kernel has let go of input meant for earlier cells; true: it may be written now. */
  readonly stdin: Deferred<boolean>;
  takesStdin?: boolean;
  readonly program: Pick<KernelProgram, 'onCall' | 'onWaiting'> | undefined;
  /** Numbers of calls that have no answer. */
  readonly outstanding: Set<number>;
  lastCall: number;
  /** What it said last of its waiting, if it waits. */
  rests: boolean | null;
}

function programPart(program: KernelProgram | undefined) {
  if (program === undefined) return {};
  const { tools, arguments: given } = program;
  return given === undefined ? { tools } : { tools, arguments: given };
}

function stdinOf({ stdin, takesStdin }: RunningCell): 'none' | 'expected' | 'ready' {
  if (!stdin.settled) return 'expected';
  return takesStdin === true ? 'ready' : 'none';
}

function carriedCell(running: RunningCell): CarriedKernel['running'] {
  const { id, program, outstanding, lastCall, rests } = running;
  const stdin = stdinOf(running);
  if (program === undefined) return { id, stdin };
  return { id, stdin, program: { last_call: lastCall, outstanding: [...outstanding], rests } };
}

/** Where the output and the calls of the cell of a checkpoint go. */
export interface AdoptedCell {
  readonly sink?: OutputSink;
  readonly program?: Pick<KernelProgram, 'onCall' | 'onWaiting'>;
}

const UNHEARD = { onCall: () => undefined, onWaiting: () => undefined };

export class Kernel {
  readonly #channel: Channel;
  readonly #messages = new KernelMessages((message) => this.#take(message));
  readonly #ready = deferred<GuestResult<void>>();
  #running: RunningCell | undefined;
  #cells = 0;
  #alive = true;

  private constructor(channel: Channel) {
    this.#channel = channel;
    void channel.exited.then((exit) => this.#ended(exit.ok ? succeed(diedOutcome(exit.value)) : exit));
  }

  static async start(link: GuestLink, options: KernelStart): Promise<GuestResult<Kernel>> {
    let kernel: Kernel | undefined;
    const early: Uint8Array[] = [];
    const channel = await link.spawn({
      argv: options.argv,
      cwd: options.cwd,
      environment: options.environment,
      control: true,
      muted: true,
      renewableStdin: true,
      onControl: (bytes) => (kernel === undefined ? early.push(bytes) : kernel.#receive(bytes)),
      timeoutMs: options.readyTimeoutMs,
    });
    if (!channel.ok) return channel;
    kernel = new Kernel(channel.value);
    for (const bytes of early) kernel.#receive(bytes);
    const late = () => fail('timeout', 'the kernel did not become ready');
    const ready = await within(kernel.#ready.promise, options.readyTimeoutMs, late, link.standing);
    if (ready.ok) return succeed(kernel);
    await kernel.dispose();
    return ready;
  }

  /** One that goes on from a checkpoint; `onOutput` is for the cell that runs there. */
  static adopt(link: GuestLink, carried: CarriedKernel, io: AdoptedCell = {}): Kernel | undefined {
    let kernel: Kernel | undefined;
    const receive = (bytes: Uint8Array): void => {
      if (kernel !== undefined) kernel.#receive(bytes);
    };
    const channel = link.claim(carried.channel, { onControl: receive });
    if (channel === undefined) return undefined;
    kernel = new Kernel(channel);
    kernel.#ready.resolve(succeed(undefined));
    kernel.#cells = carried.cells;
    const { running } = carried;
    if (running !== null) {
      kernel.#running = {
        id: running.id,
        result: deferred(),
        stdin: deferred(),
        takesStdin: running.stdin === 'ready',
        program: running.program === undefined ? undefined : (io.program ?? UNHEARD),
        outstanding: new Set(running.program?.outstanding),
        lastCall: running.program?.last_call ?? 0,
        rests: running.program?.rests ?? null,
      };
      if (running.stdin !== 'expected') kernel.#running.stdin.resolve(running.stdin === 'ready');
      channel.setOutput(io.sink);
    }
    kernel.#receive(Buffer.from(carried.pending, 'base64'));
    const cell = kernel.#running;
    // It will not say so again.
    if (cell !== undefined && cell.rests !== null) cell.program?.onWaiting(cell.rests);
    return kernel;
  }

  /** How it stands; only while the guest stands still. */
  carry(): CarriedKernel {
    const running = this.#running;
    return {
      channel: this.#channel.id,
      cells: this.#cells,
      pending: this.#messages.pending.toString('base64'),
      running: running === undefined ? null : carriedCell(running),
    };
  }

  get channelId(): number {
    return this.#channel.id;
  }

  /** Of the cell that runs; that of a checkpoint goes on. */
  get outcome(): Promise<GuestResult<KernelOutcome>> | undefined {
    return this.#running?.result.promise;
  }

  /** False once the process ended: then a new kernel is needed. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Runs one cell; resolves when it ended and all its output was given to `onOutput`. */
  execute(cell: KernelCell): Promise<GuestResult<KernelOutcome>> {
    if (!this.#alive) return Promise.resolve(fail('channel_ended', 'the kernel ended before'));
    if (this.#running !== undefined) return Promise.resolve(fail('limit', 'the kernel runs a cell already'));
    const id = String(++this.#cells);
    const request = encodeKernelRequest({
      type: 'execute',
      id,
      code: cell.code,
      stdin: cell.stdin === true,
      ...programPart(cell.program),
    });
    if (request.length > MAX_WAITING_BYTES) return Promise.resolve(fail('limit', 'the code is too long'));
    const running: RunningCell = {
      id,
      result: deferred(),
      stdin: deferred(),
      program: cell.program,
      outstanding: new Set(),
      lastCall: 0,
      rests: null,
    };
    this.#running = running;
    if (cell.stdin !== true) running.stdin.resolve(false);
    this.#channel.setOutput(cell.onOutput);
    this.#channel.renewStdin();
    this.#channel.unmute();
    this.#channel.mark();
    void this.#channel.sendControl(request).then((sent) => {
      if (!sent.ok && this.#alive) this.#ended(sent);
    });
    return running.result.promise;
  }

  async writeStdin(bytes: Uint8Array): Promise<GuestResult<void>> {
    if (!(await this.#takesStdin())) return fail('channel_ended', 'no cell that reads stdin runs');
    return this.#channel.writeStdin(bytes);
  }

  /** The end of the input of the cell that runs: the next one has input again. */
  async closeStdin(): Promise<GuestResult<void>> {
    if (!(await this.#takesStdin())) return fail('channel_ended', 'no cell that reads stdin runs');
    this.#channel.closeStdin();
    return succeed(undefined);
  }

  /**
   * The answer to a call of the cell that runs: given once, and settled when it is on its way into the guest. False
   * where nobody waits for it.
   */
  async answer(answer: CallAnswer): Promise<boolean> {
    const running = this.#running;
    if (running?.outstanding.delete(answer.call) !== true) return false;
    running.rests = null;
    await this.#channel.sendControl(encodeKernelRequest({ type: 'tool_result', id: running.id, ...answer }));
    return true;
  }

  /** Interrupts the cell that runs, and sends SIGINT to the processes it started. */
  interrupt(): void {
    if (this.#running === undefined) return;
    /* The message goes first: a cell that has not begun when the signal arrives finds it. */
    void this.#channel.sendControl(encodeKernelRequest({ type: 'interrupt', id: this.#running.id }));
    this.#channel.signal('SIGINT', 'since_mark');
  }

  /**
   * Interrupts, and kills the kernel if the cell still runs after the grace; then kills what the cell started.
   * From the second interrupt on output is let go: the cell may be blocked on a reader that no longer reads.
   */
  async stop(graceMs: number): Promise<{ stateLost: boolean }> {
    const running = this.#running?.result.promise;
    if (running !== undefined) {
      const ended = running.then(() => true);
      const deadline = performance.now() + graceMs;
      let over = false;
      for (let round = 1; !over && performance.now() < deadline; round++) {
        /* Again each time: code that calls a shell misses the first one, as with a terminal. */
        this.interrupt();
        if (round > 1) this.#channel.mute();
        const waitMs = Math.min(graceMs / 2, INTERRUPT_INTERVAL_MS, deadline - performance.now());
        over = await within(ended, Math.max(waitMs, 1), () => false);
      }
      if (!over) this.#channel.signal('SIGKILL', 'process');
    }
    await this.#channel.killSinceMark(CONFIRM_TIMEOUT_MS);
    if (running !== undefined) await this.#channel.settle(running, CONFIRM_TIMEOUT_MS);
    return { stateLost: !this.#alive };
  }

  /** Kills the kernel and everything it started. */
  async dispose(): Promise<void> {
    await this.#channel.release(CONFIRM_TIMEOUT_MS);
  }

  /** A cell can reach the control pair too; one that writes nonsense there has lost its kernel. */
  #receive(bytes: Uint8Array): void {
    const failure = this.#messages.push(bytes);
    if (failure !== undefined) this.#ended({ ok: false, failure });
  }

  #take(message: KernelMessage): GuestFailure | undefined {
    if (message.type === 'ready') {
      if (this.#ready.settled) return protocol('a second greeting');
      this.#ready.resolve(succeed(undefined));
    } else if (message.id !== this.#running?.id) {
      return protocol('an answer to no cell that runs');
    } else if (message.type === 'tool_call') {
      return this.#takeCall(this.#running, message);
    } else if (message.type === 'waiting') {
      if (this.#running.outstanding.size === 0) return undefined;
      this.#running.rests = message.rests;
      this.#running.program?.onWaiting(message.rests);
    } else if (message.type === 'stdin_ready') {
      if (this.#running.stdin.settled) return protocol('input was asked for twice, or where there is none');
      this.#running.takesStdin = true;
      this.#running.stdin.resolve(true);
    } else {
      this.#settle(succeed(outcomeOf(message)));
    }
    return undefined;
  }

  #takeCall(
    running: RunningCell,
    { call, name, arguments: given }: KernelToolCall,
  ): GuestFailure | undefined {
    if (running.program === undefined) return protocol('a call of a tool by a cell that has none');
    if (call !== running.lastCall + 1) return protocol('a call out of its order');
    if (running.outstanding.size >= MAX_CALLS_OUTSTANDING) return protocol('more calls than may wait');
    running.lastCall = call;
    running.rests = null;
    running.outstanding.add(call);
    running.program.onCall({ call, name, arguments: given });
    return undefined;
  }

  async #takesStdin(): Promise<boolean> {
    const running = this.#running;
    return running !== undefined && (await running.stdin.promise) && running === this.#running;
  }

  #settle(outcome: GuestResult<KernelOutcome>): void {
    const running = this.#running;
    this.#running = undefined;
    this.#channel.setOutput(undefined);
    if (this.#alive) this.#channel.mute();
    running?.stdin.resolve(false);
    running?.result.resolve(outcome);
  }

  #ended(outcome: GuestResult<KernelOutcome>): void {
    if (!this.#alive) return;
    this.#alive = false;
    const failure = outcome.ok ? endedEarly(outcome.value) : outcome;
    this.#ready.resolve(failure);
    this.#settle(outcome);
    /* What earlier cells left running goes with the kernel that started it. */
    void this.#channel.release(CONFIRM_TIMEOUT_MS);
  }
}
