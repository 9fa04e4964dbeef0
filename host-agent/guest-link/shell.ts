/** The shell of a session: each call is a bash of its own that was already waiting; folder and variables live on. */

import { constants } from 'node:os';
import type { Channel, OutputSink } from './channel.ts';
import { deferred, within } from './deferred.ts';
import { fail, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import {
  encodeShellRequest,
  localeVariables,
  parseShellState,
  ShellMessages,
  type ShellState,
  saysStarted,
} from './shell-messages.ts';
import { ShellTemplate, type TemplateOptions } from './shell-template.ts';

export { type ShellState, shellState } from './shell-messages.ts';

const MAX_BACKGROUND_CALLS = 16;
const CONFIRM_TIMEOUT_MS = 10_000;
const START_TIMEOUT_MS = 30_000;
const MAX_STARTS = 3;

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

export interface ShellOptions extends Omit<TemplateOptions, 'locale'> {
  readonly state: ShellState;
  /** Where a call starts when the session's folder is gone. */
  readonly home: string;
}

export interface ShellCommand {
  readonly command: string;
  readonly onOutput: OutputSink;
  /** `closed`, the default: standard input is at its end at once. */
  readonly stdin?: 'closed' | 'open';
}

interface Spare {
  readonly channel: Channel;
  readonly messages: ShellMessages;
}

export class SessionShell {
  readonly #template: ShellTemplate;
  readonly #options: ShellOptions;
  readonly #running = new Set<Channel>();
  readonly #background: Channel[] = [];
  #spare: Promise<GuestResult<Spare>> | undefined;
  #disposed = false;
  /** What the next call starts with. */
  state: ShellState;

  constructor(link: GuestLink, options: ShellOptions) {
    this.#template = new ShellTemplate(link, { ...options, locale: localeVariables(options.state) });
    this.#options = options;
    this.state = options.state;
  }

  /** Makes the shell of the next call, unless it waits already. */
  async warm(): Promise<GuestResult<void>> {
    this.#spare ??= this.#startSpare();
    const waiting = this.#spare;
    const spare = await waiting;
    if (spare.ok) return succeed(undefined);
    if (this.#spare === waiting) this.#spare = undefined;
    return spare;
  }

  /** Resolves when the command has begun; a spare that died before is replaced, for nothing ran in it. */
  async run(call: ShellCommand): Promise<GuestResult<ShellCall>> {
    const request = encodeShellRequest(this.state, this.#options.home, call.command);
    if (!request.ok) return request;
    let begun: GuestResult<ShellCall> = fail('channel_ended', 'the shell ended before the command began');
    for (let starts = 0; starts < MAX_STARTS && !begun.ok; starts++) {
      const spare = await this.#takeSpare();
      if (!spare.ok) return spare;
      begun = await this.#begin(spare.value, call, request.value);
      if (!begun.ok && begun.failure.reason !== 'channel_ended') return begun;
    }
    return begun;
  }

  /** Kills what waits, the calls that run, and what earlier ones left in the background. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    const spare = await this.#spare;
    const channels = [...this.#running, ...this.#background.splice(0)];
    if (spare?.ok === true) channels.push(spare.value.channel);
    await Promise.all([
      this.#template.dispose(),
      ...channels.map((channel) => channel.release(CONFIRM_TIMEOUT_MS)),
    ]);
  }

  async #begin(
    { channel, messages }: Spare,
    call: ShellCommand,
    request: Buffer,
  ): Promise<GuestResult<ShellCall>> {
    const started = deferred<GuestResult<void>>();
    const before = this.state;
    let saved: ShellState | undefined;
    messages.onMessage = (body) => {
      if (saysStarted(body)) started.resolve(succeed(undefined));
      /* The command can reach this pair too: what is not a state is not one, and the one before stays. */ else
        saved = parseShellState(body, before) ?? saved;
    };
    this.#running.add(channel);
    channel.setOutput(call.onOutput);
    channel.unmute();
    if (call.stdin !== 'open') channel.closeStdin();
    void channel.sendControl(request);
    void channel.exited.then(() => {
      this.#running.delete(channel);
      started.resolve(fail('channel_ended', 'the shell ended'));
    });
    const late = () => fail('timeout', 'the command did not begin in time');
    const begun = await within(started.promise, START_TIMEOUT_MS, late, channel.standing);
    if (!begun.ok) {
      void channel.release(CONFIRM_TIMEOUT_MS);
      return begun;
    }
    const outcome = this.#outcome(channel, () => saved);
    return succeed({
      outcome,
      writeStdin: (bytes) => channel.writeStdin(bytes),
      closeStdin: () => channel.closeStdin(),
      interrupt: () => channel.signal('SIGINT', 'tree'),
      stop: (graceMs) => stopCall(channel, outcome, graceMs),
    });
  }

  async #takeSpare(): Promise<GuestResult<Spare>> {
    if (this.#disposed) return fail('channel_ended', 'the shell was disposed of');
    const waiting = this.#spare;
    this.#spare = undefined;
    const spare = await waiting;
    if (spare?.ok !== true) return this.#startSpare();
    if (!spare.value.channel.hasExited) return spare;
    void spare.value.channel.release(CONFIRM_TIMEOUT_MS);
    return this.#startSpare();
  }

  async #startSpare(): Promise<GuestResult<Spare>> {
    const messages = new ShellMessages();
    const channel = await this.#template.start((bytes) => messages.push(bytes));
    return channel.ok ? succeed({ channel: channel.value, messages }) : channel;
  }

  async #outcome(channel: Channel, saved: () => ShellState | undefined): Promise<GuestResult<ShellOutcome>> {
    const exit = await channel.exited;
    if (!this.#disposed) void this.warm();
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

async function stopCall(channel: Channel, outcome: Promise<unknown>, graceMs: number): Promise<void> {
  if (graceMs > 0) {
    channel.signal('SIGINT', 'tree');
    await within(outcome, graceMs, () => undefined);
  }
  await channel.killSinceMark(CONFIRM_TIMEOUT_MS);
  await channel.settle(outcome, CONFIRM_TIMEOUT_MS);
}
