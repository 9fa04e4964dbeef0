/** The shell of a session: each call is a bash of its own that was already waiting; folder and variables live on. */

import { constants } from 'node:os';
import { Afterwards } from './afterwards.ts';
import type { CarriedShell } from './carried.ts';
import type { Channel, OutputSink } from './channel.ts';
import { deferred, within } from './deferred.ts';
import { fail, type GuestResult, succeed } from './failure.ts';
import type { GuestLink } from './guest-link.ts';
import {
  decodeState,
  encodePreparation,
  encodePreparedRequest,
  encodeShellRequest,
  encodeState,
  isSameState,
  localeVariables,
  parseShellState,
  ShellMessages,
  type ShellState,
  saysStarted,
} from './shell-messages.ts';
import { ShellTemplate, type TemplateOptions } from './shell-template.ts';

export { isSameState, type ShellState, shellState } from './shell-messages.ts';

const MAX_BACKGROUND_CALLS = 16;
const CONFIRM_TIMEOUT_MS = 10_000;
const START_TIMEOUT_MS = 30_000;
const MAX_STARTS = 3;
/**
 * Processes of the sandbox that begin and end take more of the machine than the call itself did. The end of the call is
 * to be written down and told before that.
 */
const AFTERWARDS_MS = 2;

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
  /** Whether a shell waits for the next call; true where nothing is said. */
  readonly keepsSpare?: boolean;
}

export interface ShellCommand {
  readonly command: string;
  readonly onOutput: OutputSink;
  /** `closed`, the default: standard input is at its end at once. */
  readonly stdin?: 'closed' | 'open';
}

/** Of a call that runs, what a host that goes on with it has to know. */
interface RunningCall {
  readonly channel: Channel;
  readonly messages: ShellMessages;
  saved: ShellState | undefined;
}

interface Spare {
  readonly channel: Channel;
  readonly messages: ShellMessages;
  /** What it is made ready for; undefined where for nothing. */
  readonly preparedFor?: ShellState | undefined;
}

export class SessionShell {
  readonly #template: ShellTemplate;
  readonly #options: ShellOptions;
  readonly #running = new Set<Channel>();
  readonly #background: Channel[] = [];
  readonly #afterwards = new Afterwards(AFTERWARDS_MS);
  #spare: Promise<GuestResult<Spare>> | undefined;
  #disposed = false;
  #beginning: Promise<unknown> = Promise.resolve();
  #call: RunningCall | undefined;
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

  /** Nothing begins or is made ready any more when it resolves. */
  async settled(): Promise<void> {
    await this.#beginning;
    this.#afterwards.now();
    await this.#spare;
  }

  /** How it stands; only while the guest stands still, and after `settled`. */
  async carry(): Promise<CarriedShell> {
    const spare = await this.#spare;
    const call = this.#call;
    return {
      state: encodeState(this.state),
      template: await this.#template.channelId(),
      spare: spare?.ok === true && !spare.value.channel.hasExited ? spare.value.channel.id : null,
      background: this.#background.map(({ id }) => id),
      running:
        call === undefined
          ? null
          : {
              channel: call.channel.id,
              ...call.messages.carry(),
              saved: call.saved === undefined ? null : encodeState(call.saved),
            },
    };
  }

  /** Goes on from a checkpoint; gives the call that runs there, whose output goes to `onOutput`. */
  adopt(link: GuestLink, carried: CarriedShell, onOutput: OutputSink | undefined): ShellCall | undefined {
    this.state = decodeState(carried.state);
    const template = carried.template === null ? undefined : link.claim(carried.template, {});
    if (template !== undefined) this.#template.adopt(template);
    const spare = carried.spare === null ? undefined : claimWithMessages(link, carried.spare, undefined);
    if (spare !== undefined) this.#spare = Promise.resolve(succeed(spare));
    for (const id of carried.background) {
      const channel = link.claim(id, {});
      if (channel !== undefined) this.#keepBackground(channel);
    }
    if (carried.running === null) return undefined;
    const { running } = carried;
    const claimed = claimWithMessages(link, running.channel, onOutput);
    if (claimed === undefined) return undefined;
    const call: RunningCall = {
      ...claimed,
      saved: running.saved === null ? undefined : decodeState(running.saved),
    };
    this.#follow(call);
    claimed.messages.goOnFrom(running);
    return this.#callOf(call);
  }

  /** Resolves when the command has begun; a spare that died before is replaced, for nothing ran in it. */
  run(call: ShellCommand): Promise<GuestResult<ShellCall>> {
    const beginning = this.#run(call);
    this.#beginning = beginning;
    return beginning;
  }

  async #run(call: ShellCommand): Promise<GuestResult<ShellCall>> {
    let begun: GuestResult<ShellCall> = fail('channel_ended', 'the shell ended before the command began');
    for (let starts = 0; starts < MAX_STARTS && !begun.ok; starts++) {
      const spare = await this.#takeSpare();
      if (!spare.ok) return spare;
      const request = this.#requestTo(spare.value, call.command);
      if (!request.ok) {
        this.#spare = Promise.resolve(spare);
        return request;
      }
      begun = await this.#begin(spare.value, call, request.value);
      if (!begun.ok && begun.failure.reason !== 'channel_ended') return begun;
    }
    return begun;
  }

  #requestTo({ preparedFor }: Spare, command: string): GuestResult<Buffer> {
    return preparedFor !== undefined && isSameState(preparedFor, this.state)
      ? encodePreparedRequest(command)
      : encodeShellRequest(this.state, this.#options.home, command);
  }

  /** Kills what waits, the calls that run, and what earlier ones left in the background. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    this.#afterwards.now();
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
    const running: RunningCall = { channel, messages, saved: undefined };
    this.#follow(running, () => started.resolve(succeed(undefined)));
    channel.setOutput(call.onOutput);
    channel.unmute();
    if (call.stdin !== 'open') channel.closeStdin();
    void channel.sendControl(request);
    void channel.exited.then(() => started.resolve(fail('channel_ended', 'the shell ended')));
    const late = () => fail('timeout', 'the command did not begin in time');
    const begun = await within(started.promise, START_TIMEOUT_MS, late, channel.standing);
    if (!begun.ok) {
      this.#call = undefined;
      void channel.release(CONFIRM_TIMEOUT_MS);
      return begun;
    }
    return succeed(this.#callOf(running));
  }

  /** The command can reach this pair too: what is not a state is not one, and the one before stays. */
  #follow(call: RunningCall, onStarted: () => void = () => undefined): void {
    const before = this.state;
    this.#call = call;
    call.messages.onMessage = (body) => {
      if (saysStarted(body)) onStarted();
      else call.saved = parseShellState(body, before) ?? call.saved;
    };
    this.#running.add(call.channel);
    void call.channel.exited.then(() => this.#running.delete(call.channel));
  }

  #callOf(call: RunningCall): ShellCall {
    const { channel } = call;
    const outcome = this.#outcome(call);
    return {
      outcome,
      writeStdin: (bytes) => channel.writeStdin(bytes),
      closeStdin: () => channel.closeStdin(),
      interrupt: () => channel.signal('SIGINT', 'tree'),
      stop: (graceMs) => stopCall(channel, outcome, graceMs),
    };
  }

  async #takeSpare(): Promise<GuestResult<Spare>> {
    if (this.#disposed) return fail('channel_ended', 'the shell was disposed of');
    this.#afterwards.now();
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
    const state = this.state;
    const preparation = encodePreparation(state, this.#options.home);
    const shell = await this.#template.start((bytes) => messages.push(bytes), preparation);
    if (!shell.ok) return shell;
    const { channel, isPrepared } = shell.value;
    return succeed({ channel, messages, preparedFor: isPrepared ? state : undefined });
  }

  async #outcome(call: RunningCall): Promise<GuestResult<ShellOutcome>> {
    const { channel } = call;
    const exit = await channel.exited;
    if (this.#call === call) this.#call = undefined;
    this.#afterwards.add(() => {
      if (!this.#disposed && this.#options.keepsSpare !== false) void this.warm();
    });
    if (!exit.ok) return exit;
    const state = call.saved;
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
    const forget = (): void => {
      const at = this.#background.indexOf(channel);
      if (at >= 0) this.#background.splice(at, 1);
      void channel.release(CONFIRM_TIMEOUT_MS);
    };
    void channel.gone.then(() => this.#afterwards.add(forget));
    if (this.#background.length > MAX_BACKGROUND_CALLS) void this.#background[0]?.release(CONFIRM_TIMEOUT_MS);
  }
}

function claimWithMessages(link: GuestLink, id: number, onOutput: OutputSink | undefined): Spare | undefined {
  const messages = new ShellMessages();
  const onControl = (bytes: Uint8Array): void => messages.push(bytes);
  const channel = link.claim(id, onOutput === undefined ? { onControl } : { onControl, onOutput });
  return channel === undefined ? undefined : { channel, messages };
}

async function stopCall(channel: Channel, outcome: Promise<unknown>, graceMs: number): Promise<void> {
  if (graceMs > 0) {
    channel.signal('SIGINT', 'tree');
    await within(outcome, graceMs, () => undefined);
  }
  await channel.killSinceMark(CONFIRM_TIMEOUT_MS);
  await channel.settle(outcome, CONFIRM_TIMEOUT_MS);
}
