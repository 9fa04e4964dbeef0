/** The shell of a session: each call is a bash of its own that was already waiting; folder and variables live on. */

import { constants } from 'node:os';
import type { Channel, OutputSink } from './channel.ts';
import { within } from './deferred.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import { LengthPrefixedDecoder, lengthPrefixed } from './length-prefixed.ts';

const PRELOAD_PATH = '/sandgate/shell-spare.so';
const MAX_STATE_BYTES = 1024 * 1024;
const MAX_COMMAND_BYTES = 2 * 1024 * 1024;
const MAX_BACKGROUND_CALLS = 16;
const CONFIRM_TIMEOUT_MS = 10_000;
const STATE_COMPLETE = 1;
const NUL = Buffer.alloc(1);

/** What lives on from call to call, in the bytes of the guest's kernel: names need not be UTF-8. */
export interface ShellState {
  readonly cwd: Uint8Array;
  /** `NAME=value`, each. */
  readonly environment: readonly Uint8Array[];
}

export interface ShellOutcome {
  /** 128 + n for a signal, as a shell counts. */
  readonly exitCode: number;
  readonly signal: NodeJS.Signals | null;
  readonly state: ShellState;
  /** False when the shell ended without telling its state, as by a signal: the one before stays. */
  readonly stateSaved: boolean;
  readonly cpuMs: number;
}

export interface ShellCall {
  readonly outcome: Promise<GuestResult<ShellOutcome>>;
  writeStdin(bytes: Uint8Array): Promise<GuestResult<void>>;
  closeStdin(): void;
  /** SIGINT to everything the call started. */
  interrupt(): void;
  /** SIGINT, the grace, then SIGKILL for every process of the call; the outcome has resolved then. */
  stop(graceMs: number): Promise<void>;
}

export interface ShellOptions {
  readonly state: ShellState;
  /** Where a call starts when the session's folder is gone. */
  readonly home: string;
  /** Shells kept waiting, by default 1. */
  readonly spares?: number;
  /** The interpreter, by default `bash` of the path. */
  readonly bash?: string;
  /** Where the preloaded library lies in the sandbox. */
  readonly preload?: string;
}

interface Spare {
  readonly channel: Channel;
  onState: (bytes: Uint8Array) => void;
}

export function shellState(cwd: string, environment: readonly string[]): ShellState {
  return { cwd: Buffer.from(cwd), environment: environment.map((variable) => Buffer.from(variable)) };
}

function encodeRequest(state: ShellState, home: string, command: string): GuestResult<Buffer> {
  const strings = [state.cwd, Buffer.from(home), Buffer.from(command), ...state.environment];
  if (strings.some((text) => text.includes(0))) return fail('limit', 'a NUL byte in the command');
  const count = Buffer.alloc(4);
  count.writeUInt32BE(state.environment.length, 0);
  const body = Buffer.concat([count, ...strings.flatMap((text) => [text, NUL])]);
  if (body.length > MAX_COMMAND_BYTES + MAX_STATE_BYTES) return fail('limit', 'the command is too long');
  return succeed(lengthPrefixed(body));
}

function parseState(body: Buffer, before: ShellState): ShellState | undefined {
  const texts: Buffer[] = [];
  for (let at = 1; at < body.length; ) {
    const end = body.indexOf(0, at);
    if (end < 0) return undefined;
    texts.push(body.subarray(at, end));
    at = end + 1;
  }
  const [cwd, ...environment] = texts;
  if (cwd === undefined) return undefined;
  return {
    cwd: cwd.length > 0 ? cwd : before.cwd,
    environment: body[0] === STATE_COMPLETE ? environment : before.environment,
  };
}

export class ShellSpares {
  readonly #link: GuestLink;
  readonly #options: ShellOptions;
  readonly #spares: Spare[] = [];
  readonly #background: Channel[] = [];
  #filling: Promise<GuestResult<void>> | undefined;
  #disposed = false;
  /** What the next call starts with. */
  state: ShellState;

  constructor(link: GuestLink, options: ShellOptions) {
    this.#link = link;
    this.#options = options;
    this.state = options.state;
  }

  /** Starts the spares that are missing. */
  fill(): Promise<GuestResult<void>> {
    this.#filling ??= this.#fill().finally(() => {
      this.#filling = undefined;
    });
    return this.#filling;
  }

  async run(call: {
    command: string;
    onOutput: OutputSink;
    stdin?: 'closed' | 'open';
  }): Promise<GuestResult<ShellCall>> {
    const request = encodeRequest(this.state, this.#options.home, call.command);
    if (!request.ok) return request;
    const spare = await this.#takeSpare();
    if (!spare.ok) return spare;
    const { channel } = spare.value;
    const before = this.state;
    let saved: ShellState | undefined;
    const decoder = new LengthPrefixedDecoder(MAX_STATE_BYTES);
    spare.value.onState = (bytes) => {
      const bodies = decoder.push(bytes);
      /* The command can reach this pair too: what is not a state is not one, and the one before stays. */
      for (const body of bodies.ok ? bodies.value : []) saved = parseState(body, before) ?? saved;
    };
    channel.setOutput(call.onOutput);
    channel.unmute();
    if (call.stdin !== 'open') channel.closeStdin();
    void channel.sendControl(request.value);
    const outcome = this.#outcome(channel, () => saved);
    return succeed({
      outcome,
      writeStdin: (bytes) => channel.writeStdin(bytes),
      closeStdin: () => channel.closeStdin(),
      interrupt: () => channel.signal('SIGINT', 'tree'),
      stop: (graceMs) => stopCall(channel, outcome, graceMs),
    });
  }

  /** Kills the spares and what earlier calls left in the background. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    await this.#filling;
    const channels = [...this.#spares.splice(0).map((spare) => spare.channel), ...this.#background.splice(0)];
    await Promise.all(channels.map((channel) => channel.release(CONFIRM_TIMEOUT_MS)));
  }

  async #fill(): Promise<GuestResult<void>> {
    const wanted = this.#options.spares ?? 1;
    while (this.#spares.length < wanted && !this.#disposed) {
      const spare = await this.#startSpare();
      if (!spare.ok) return spare;
      this.#spares.push(spare.value);
    }
    return succeed(undefined);
  }

  async #takeSpare(): Promise<GuestResult<Spare>> {
    if (this.#disposed) return fail('channel_ended', 'the shell was disposed of');
    /* One that is on its way is sooner ready than another one. */
    if (this.#spares.length === 0) await this.#filling;
    for (let spare = this.#spares.shift(); spare !== undefined; spare = this.#spares.shift()) {
      if (!spare.channel.hasExited) return succeed(spare);
      void spare.channel.release(CONFIRM_TIMEOUT_MS);
    }
    return this.#startSpare();
  }

  async #startSpare(): Promise<GuestResult<Spare>> {
    let spare: Spare | undefined;
    const channel = await this.#link.spawn({
      argv: [this.#options.bash ?? 'bash', '-c', ':'],
      cwd: '/',
      environment: [`LD_PRELOAD=${this.#options.preload ?? PRELOAD_PATH}`, ...pathOf(this.state)],
      control: true,
      muted: true,
      onControl: (bytes) => spare?.onState(bytes),
    });
    if (!channel.ok) return channel;
    spare = { channel: channel.value, onState: () => undefined };
    return succeed(spare);
  }

  async #outcome(channel: Channel, saved: () => ShellState | undefined): Promise<GuestResult<ShellOutcome>> {
    const exit = await channel.exited;
    void this.fill();
    if (!exit.ok) return exit;
    const state = saved();
    if (state !== undefined) this.state = state;
    this.#keepBackground(channel);
    const { exitCode, signal, cpuMs } = exit.value;
    return succeed({
      exitCode: signal === null ? (exitCode ?? 0) : 128 + constants.signals[signal],
      signal,
      state: this.state,
      stateSaved: state !== undefined,
      cpuMs,
    });
  }

  /** Processes may outlive their call; how many calls they belong to is bounded, and the oldest go first. */
  #keepBackground(channel: Channel): void {
    channel.setOutput(undefined);
    this.#background.push(channel);
    void channel.gone.then(() => {
      const at = this.#background.indexOf(channel);
      if (at >= 0) this.#background.splice(at, 1);
      void channel.release(CONFIRM_TIMEOUT_MS);
    });
    if (this.#background.length > MAX_BACKGROUND_CALLS) void this.#background[0]?.release(CONFIRM_TIMEOUT_MS);
  }
}

function pathOf(state: ShellState): Uint8Array[] {
  return state.environment.filter((variable) =>
    Buffer.from(variable.subarray(0, 5)).equals(Buffer.from('PATH=')),
  );
}

async function stopCall(
  channel: Channel,
  outcome: Promise<GuestResult<ShellOutcome>>,
  graceMs: number,
): Promise<void> {
  const failure: GuestFailure = { reason: 'timeout', message: 'the call did not end' };
  if (graceMs > 0) {
    channel.signal('SIGINT', 'tree');
    await within<GuestResult<unknown>>(outcome, graceMs, () => ({ ok: false, failure }));
  }
  await channel.killSinceMark(CONFIRM_TIMEOUT_MS);
  await within<GuestResult<unknown>>(outcome, CONFIRM_TIMEOUT_MS, () => ({ ok: false, failure }));
}
