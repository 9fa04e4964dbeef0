/** The Python kernel of a sandbox: one process that keeps its variables from cell to cell. */
import * as z from 'zod';
import type { Channel, OutputSink } from './channel.ts';
import { type Deferred, deferred, within } from './deferred.ts';
import { fail, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import { MAX_WAITING_BYTES } from './input-window.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';

const KERNEL_PATH = '/sandgate/kernels/python.py';
const MAX_MESSAGE_BYTES = 40 * 1024 * 1024;
const CONFIRM_TIMEOUT_MS = 10_000;
const INTERRUPT_INTERVAL_MS = 1_000;

const ErrorSchema = z.object({ name: z.string(), message: z.string(), traceback: z.string() });
const MessageSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), version: z.string().max(64) }),
  z.object({ type: z.literal('stdin_ready'), id: z.string() }),
  z.object({
    type: z.literal('result'),
    id: z.string(),
    status: z.enum(['ok', 'error', 'interrupted']),
    value: z.string().nullable(),
    value_truncated: z.boolean(),
    results: z.array(z.object({ mime: z.string().max(256), data: z.string() })).max(16),
    error: ErrorSchema.nullable(),
    exit_code: z.int().min(0).max(255).nullable(),
    cpu_ms: z.number().min(0),
  }),
]);
type ResultMessage = Extract<z.infer<typeof MessageSchema>, { type: 'result' }>;

export interface PythonOutcome {
  /** `died`: the kernel's process ended, and with it the variables. */
  readonly status: 'succeeded' | 'failed' | 'interrupted' | 'died';
  /** Of SystemExit, or of the process that died. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly value: string | null;
  readonly valueTruncated: boolean;
  readonly error: { readonly name: string; readonly message: string; readonly traceback: string } | null;
  readonly results: readonly { readonly mime: string; readonly data: string }[];
  readonly cpuMs: number;
}

export interface PythonStart {
  readonly cwd: string;
  readonly environment: readonly string[];
  readonly readyTimeoutMs: number;
  /** The interpreter, by default `python3` of the path. */
  readonly python?: string;
  /** Where the kernel's script lies in the sandbox. */
  readonly script?: string;
}

export interface PythonCell {
  readonly code: string;
  readonly onOutput: OutputSink;
  /** Whether `writeStdin` may reach the cell; without it `input()` is at its end at once. */
  readonly stdin?: boolean;
}

const STATUS = { ok: 'succeeded', error: 'failed', interrupted: 'interrupted' } as const;

function outcomeOf(message: ResultMessage): PythonOutcome {
  return {
    status: STATUS[message.status],
    exitCode: message.exit_code,
    signal: null,
    value: message.value?.toWellFormed() ?? null,
    valueTruncated: message.value_truncated,
    error:
      message.error === null
        ? null
        : {
            name: message.error.name.toWellFormed(),
            message: message.error.message.toWellFormed(),
            traceback: message.error.traceback.toWellFormed(),
          },
    results: message.results,
    cpuMs: message.cpu_ms,
  };
}

function diedOutcome(exit: { exitCode: number | null; signal: NodeJS.Signals | null }): PythonOutcome {
  const end = exit.signal === null ? `exit code ${exit.exitCode}` : exit.signal;
  const message = `the interpreter ended (${end}); its variables are lost`;
  return {
    status: 'died',
    ...exit,
    value: null,
    valueTruncated: false,
    error: { name: 'KernelDied', message, traceback: '' },
    results: [],
    cpuMs: 0,
  };
}

function encode(message: object): Buffer {
  return lengthPrefixed(Buffer.from(JSON.stringify(message), 'utf8'));
}

interface RunningCell {
  readonly id: string;
  readonly result: Deferred<GuestResult<PythonOutcome>>;
  /** Settles once the kernel has let go of input meant for earlier cells; true: it may be written now. */
  readonly stdin: Deferred<boolean>;
}

export class PythonKernel {
  readonly #channel: Channel;
  readonly #decoder = new LengthPrefixedDecoder(MAX_MESSAGE_BYTES);
  readonly #ready = deferred<GuestResult<void>>();
  #running: RunningCell | undefined;
  #cells = 0;
  #alive = true;

  private constructor(channel: Channel) {
    this.#channel = channel;
    void channel.exited.then((exit) => this.#ended(exit.ok ? succeed(diedOutcome(exit.value)) : exit));
  }

  static async start(link: GuestLink, options: PythonStart): Promise<GuestResult<PythonKernel>> {
    let kernel: PythonKernel | undefined;
    const early: Uint8Array[] = [];
    const channel = await link.spawn({
      argv: [options.python ?? 'python3', options.script ?? KERNEL_PATH],
      cwd: options.cwd,
      environment: options.environment,
      control: true,
      muted: true,
      onControl: (bytes) => (kernel === undefined ? early.push(bytes) : kernel.#receive(bytes)),
      timeoutMs: options.readyTimeoutMs,
    });
    if (!channel.ok) return channel;
    kernel = new PythonKernel(channel.value);
    for (const bytes of early) kernel.#receive(bytes);
    const ready = await within(kernel.#ready.promise, options.readyTimeoutMs, () =>
      fail('timeout', 'the kernel did not become ready'),
    );
    if (ready.ok) return succeed(kernel);
    await kernel.dispose();
    return ready;
  }

  /** False once the process ended: then a new kernel is needed. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Runs one cell; resolves when it ended and all its output was given to `onOutput`. */
  execute(cell: PythonCell): Promise<GuestResult<PythonOutcome>> {
    if (!this.#alive) return Promise.resolve(fail('channel_ended', 'the kernel ended before'));
    if (this.#running !== undefined) return Promise.resolve(fail('limit', 'the kernel runs a cell already'));
    const id = String(++this.#cells);
    const request = encode({ type: 'execute', id, code: cell.code, stdin: cell.stdin === true });
    if (request.length > MAX_WAITING_BYTES) return Promise.resolve(fail('limit', 'the code is too long'));
    const running: RunningCell = { id, result: deferred(), stdin: deferred() };
    this.#running = running;
    if (cell.stdin !== true) running.stdin.resolve(false);
    this.#channel.setOutput(cell.onOutput);
    this.#channel.unmute();
    this.#channel.mark();
    void this.#channel.sendControl(request).then((sent) => {
      if (!sent.ok && this.#alive) this.#ended(sent);
    });
    return running.result.promise;
  }

  async writeStdin(bytes: Uint8Array): Promise<GuestResult<void>> {
    const running = this.#running;
    if (running === undefined || !(await running.stdin.promise) || running !== this.#running)
      return fail('channel_ended', 'no cell that reads stdin runs');
    return this.#channel.writeStdin(bytes);
  }

  /** KeyboardInterrupt in the cell that runs, SIGINT to the processes it started. */
  interrupt(): void {
    if (this.#running === undefined) return;
    /* The message goes first: a cell that has not begun when the signal arrives finds it. */
    void this.#channel.sendControl(encode({ type: 'interrupt', id: this.#running.id }));
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

  #receive(bytes: Uint8Array): void {
    const { bodies, failure } = this.#decoder.push(bytes);
    for (const body of bodies) {
      const message = parseMessage(body);
      if (message === undefined) this.#broke('a message that is not the protocol');
      else if (message.type === 'ready') this.#ready.resolve(succeed(undefined));
      else if (message.id !== this.#running?.id) continue;
      else if (message.type === 'stdin_ready') this.#running.stdin.resolve(true);
      else this.#settle(succeed(outcomeOf(message)));
    }
    if (failure !== undefined) this.#broke(failure.message);
  }

  #settle(outcome: GuestResult<PythonOutcome>): void {
    const running = this.#running;
    this.#running = undefined;
    this.#channel.setOutput(undefined);
    if (this.#alive) this.#channel.mute();
    running?.stdin.resolve(false);
    running?.result.resolve(outcome);
  }

  /** A cell can reach the control pair; one that writes nonsense there has lost its kernel. */
  #broke(message: string): void {
    this.#ended(fail('protocol', message));
  }

  #ended(outcome: GuestResult<PythonOutcome>): void {
    if (!this.#alive) return;
    this.#alive = false;
    const failure = outcome.ok ? fail('channel_ended', 'the kernel ended before it was ready') : outcome;
    this.#ready.resolve(failure);
    this.#settle(outcome);
    /* What earlier cells left running goes with the kernel that started it. */
    void this.#channel.release(CONFIRM_TIMEOUT_MS);
  }
}

function parseMessage(body: Buffer): z.infer<typeof MessageSchema> | undefined {
  let data: unknown;
  try {
    data = JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
  const message = MessageSchema.safeParse(data);
  return message.success ? message.data : undefined;
}
