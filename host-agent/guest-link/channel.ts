/** One program in a sandbox and everything it started, as the host sees it. */
import { constants } from 'node:os';
import type { CarriedChannel } from './carried.ts';
import { type Deferred, deferred, within } from './deferred.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import { type GuestFrame, HOST_FRAME, type HostFrameType, STREAM } from './frames.ts';
import { InputWindow } from './input-window.ts';
import { OutputWindow } from './output-window.ts';

export type OutputStream = 'stdout' | 'stderr';

/**
 * Credit for the bytes goes back to the guest when this returns, or when its promise settles: that is the
 * backpressure. The bytes are the callee's to keep.
 */
export type OutputSink = (stream: OutputStream, bytes: Uint8Array) => void | Promise<void>;

export interface ChannelExit {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly cpuMs: number;
  readonly maxRssBytes: number;
}

export interface ChannelOptions {
  readonly id: number;
  readonly pid: number;
  readonly send: (type: HostFrameType, payload?: Uint8Array) => void;
  /** Of the link. */
  readonly standing: () => Promise<void> | undefined;
  readonly onOutput?: OutputSink | undefined;
  readonly onControl?: ((bytes: Uint8Array) => void) | undefined;
  /** Whether credit of the control stream is given by `consumeControl` only. */
  readonly manualControl?: boolean | undefined;
  /** Credit of the standard streams, where it is not the usual one. */
  readonly outputWindowBytes?: number | undefined;
  /** Of a program that goes on from a checkpoint: how it stood there. */
  readonly carried?: CarriedChannel;
}

const STALLED_READER_MS = 1_000;

export type SignalScope = 'process' | 'tree' | 'since_mark';
const SCOPES: Record<SignalScope, number> = { process: 0, tree: 1, since_mark: 2 };

const signalNames = new Map<number, NodeJS.Signals>();
for (const name of Object.keys(constants.signals) as NodeJS.Signals[])
  if (!signalNames.has(constants.signals[name])) signalNames.set(constants.signals[name], name);

function signalNumber(name: string | null): number {
  return Object.entries(constants.signals).find(([known]) => known === name)?.[1] ?? 0;
}

function creditPayload(stream: number, bytes: number): Buffer {
  const payload = Buffer.alloc(5);
  payload.writeUInt8(stream, 0);
  payload.writeUInt32BE(bytes, 1);
  return payload;
}

export class Channel {
  readonly id: number;
  readonly pid: number;
  readonly #options: ChannelOptions;
  readonly #stdin: InputWindow;
  readonly #controlIn: InputWindow;
  readonly #windows: { stdout: OutputWindow; stderr: OutputWindow; control: OutputWindow };
  readonly #exited = deferred<GuestResult<ChannelExit>>();
  readonly #gone = deferred<void>();
  readonly #released = deferred<GuestResult<void>>();
  #kills: Deferred<GuestResult<{ killed: number }>>[] = [];
  #sink: OutputSink | undefined;
  #releaseSent = false;
  #exit: ChannelExit | undefined;

  constructor(options: ChannelOptions) {
    this.id = options.id;
    this.pid = options.pid;
    this.#options = options;
    this.#sink = options.onOutput;
    const { carried, outputWindowBytes } = options;
    this.#stdin = new InputWindow((bytes) => this.#send(HOST_FRAME.stdin, bytes), carried?.stdin);
    this.#controlIn = new InputWindow((bytes) => this.#send(HOST_FRAME.controlIn, bytes), carried?.control);
    const window = (stream: number, credit?: number, windowBytes?: number) =>
      new OutputWindow(
        (bytes) => this.#send(HOST_FRAME.credit, creditPayload(stream, bytes)),
        windowBytes,
        credit,
      );
    this.#windows = {
      stdout: window(STREAM.stdout, carried?.credit.stdout, outputWindowBytes),
      stderr: window(STREAM.stderr, carried?.credit.stderr, outputWindowBytes),
      control: window(STREAM.control, carried?.credit.control),
    };
    if (carried !== undefined) this.#goOnFrom(carried);
  }

  /** For the link only: the guest stands still, so nothing is given to it or granted until `goOn`. */
  hold(): void {
    for (const window of this.#everyWindow()) window.hold();
  }

  goOn(): void {
    for (const window of this.#everyWindow()) window.goOn();
  }

  #everyWindow(): (InputWindow | OutputWindow)[] {
    const { stdout, stderr, control } = this.#windows;
    return [this.#stdin, this.#controlIn, stdout, stderr, control];
  }

  /** How the host's side of it stands; only while the guest stands still. */
  carry(): CarriedChannel {
    const { stdout, stderr, control } = this.#windows;
    const { outputWindowBytes } = this.#options;
    return {
      id: this.id,
      pid: this.pid,
      stdin: this.#stdin.carry(),
      control: this.#controlIn.carry(),
      credit: { stdout: stdout.credit, stderr: stderr.credit, control: control.credit },
      ...(outputWindowBytes === undefined ? {} : { window_bytes: outputWindowBytes }),
      exit: this.#exit ?? null,
      is_gone: this.#gone.settled,
      is_released: this.#releaseSent,
    };
  }

  /** Whether an answer of the guest is waited for that another host would wait for in vain. */
  get isBusy(): boolean {
    return this.#kills.length > 0;
  }

  /** Settles when the main process ended and what it had written until then was given to the sink. */
  get exited(): Promise<GuestResult<ChannelExit>> {
    return this.#exited.promise;
  }

  /** Settles when no descendant is left either. */
  get gone(): Promise<void> {
    return this.#gone.promise;
  }

  get hasExited(): boolean {
    return this.#exited.settled;
  }

  get isGone(): boolean {
    return this.#gone.settled;
  }

  setOutput(sink: OutputSink | undefined): void {
    this.#sink = sink;
  }

  writeStdin(bytes: Uint8Array): Promise<GuestResult<void>> {
    return this.#stdin.write(bytes);
  }

  closeStdin(): void {
    this.#stdin.end(() => this.#send(HOST_FRAME.stdinClose));
  }

  /**
   * For what runs after the next `unmute`: input that waits is let go, and what was closed is open again. Only of a
   * program started with `renewableStdin`.
   */
  renewStdin(): void {
    this.#stdin.renew();
  }

  sendControl(bytes: Uint8Array): Promise<GuestResult<void>> {
    return this.#controlIn.write(bytes);
  }

  /** Gives credit for so many bytes of the control stream. */
  consumeControl(bytes: number): void {
    this.#windows.control.consume(bytes);
  }

  signal(name: NodeJS.Signals, scope: SignalScope): void {
    this.#send(HOST_FRAME.signal, Buffer.from([constants.signals[name], SCOPES[scope]]));
  }

  get standing(): () => Promise<void> | undefined {
    return this.#options.standing;
  }

  /** Remembers which processes exist now. */
  mark(): void {
    this.#send(HOST_FRAME.mark);
  }

  /** SIGKILL for every descendant that did not exist at the mark; without a mark, for all of them. */
  killSinceMark(timeoutMs: number): Promise<GuestResult<{ killed: number }>> {
    if (this.#releaseSent || this.#released.settled)
      return this.release(timeoutMs).then((released) => (released.ok ? succeed({ killed: 0 }) : released));
    const kill = deferred<GuestResult<{ killed: number }>>();
    this.#kills.push(kill);
    if (this.#kills.length === 1) this.#send(HOST_FRAME.killSinceMark);
    const late = () => fail('timeout', 'the kill was not confirmed in time');
    return within(kill.promise, timeoutMs, late, this.standing);
  }

  /** Output is discarded until `unmute`, which also discards what is on its way then. */
  mute(): void {
    this.#send(HOST_FRAME.mute);
  }

  unmute(): void {
    this.#send(HOST_FRAME.unmute);
  }

  /** Kills the whole tree, waits until it is gone and forgets the channel. Output from now on is discarded. */
  release(timeoutMs: number): Promise<GuestResult<void>> {
    this.#sink = undefined;
    if (!this.#released.settled) this.#send(HOST_FRAME.release);
    this.#releaseSent = true;
    const late = () => fail('timeout', 'the release was not confirmed in time');
    return within(this.#released.promise, timeoutMs, late, this.standing);
  }

  /** Waits for what follows from the program's end; output that nobody takes is let go of after a while. */
  async settle(ended: Promise<unknown>, timeoutMs: number): Promise<void> {
    const over = ended.then(() => true);
    if (await within(over, STALLED_READER_MS, () => false, this.standing)) return;
    this.mute();
    await within(over, timeoutMs, () => false, this.standing);
  }

  /** For the link only. False when the guest broke the rules of the wire. */
  receive(frame: GuestFrame): boolean {
    switch (frame.type) {
      case 'stdout':
      case 'stderr':
        return this.#receiveOutput(frame.type, frame.bytes);
      case 'control':
        if (!this.#windows.control.receive(frame.bytes.byteLength)) return false;
        this.#options.onControl?.(frame.bytes);
        if (this.#options.manualControl !== true) this.consumeControl(frame.bytes.byteLength);
        return true;
      case 'input_credit':
        return (frame.stream === 'stdin' ? this.#stdin : this.#controlIn).grant(frame.bytes);
      case 'exit':
        this.#receiveExit(frame);
        return true;
      case 'killed':
        this.#receiveKilled(frame);
        return true;
      case 'gone':
        this.#gone.resolve();
        return true;
      case 'released':
        this.#end({ reason: 'channel_ended', message: 'the channel was released' }, succeed(undefined));
        return true;
      case 'error':
      case 'ready':
      case 'pong':
      case 'counted':
      case 'stands_still':
      case 'goes_on':
      case 'spawned':
      case 'spawn_failed':
        return false;
    }
  }

  /** For the link only: it is gone, and with it the program. */
  fail(failure: GuestFailure): void {
    this.#end(failure, { ok: false, failure });
  }

  #goOnFrom({ stdin, control, exit, is_gone, is_released }: CarriedChannel): void {
    this.#releaseSent = is_released;
    if (exit !== null) this.#ended({ ...exit, signal: signalNames.get(signalNumber(exit.signal)) ?? null });
    if (is_gone) this.#gone.resolve();
    for (const [window, { waiting }] of [
      [this.#stdin, stdin],
      [this.#controlIn, control],
    ] as const) {
      if (waiting !== '') void window.write(Buffer.from(waiting, 'base64'));
    }
    if (stdin.is_ending) this.closeStdin();
  }

  /** The supervisor forgets a channel once it is released: nothing may follow that. */
  #send(type: HostFrameType, payload?: Uint8Array): void {
    if (!this.#releaseSent) this.#options.send(type, payload);
  }

  #receiveOutput(stream: OutputStream, bytes: Uint8Array): boolean {
    const window = this.#windows[stream];
    if (!window.receive(bytes.byteLength)) return false;
    const consumed = () => window.consume(bytes.byteLength);
    /* A sink that throws has let go of the bytes: neither the link nor the program may suffer from it. */
    void (async () => this.#sink?.(stream, bytes))().then(consumed, consumed);
    return true;
  }

  #receiveExit(frame: Extract<GuestFrame, { type: 'exit' }>): void {
    const signal = frame.signal === 0 ? null : (signalNames.get(frame.signal) ?? 'SIGKILL');
    this.#ended({
      exitCode: signal === null ? frame.code : null,
      signal,
      cpuMs: frame.cpuMs,
      maxRssBytes: frame.maxRssBytes,
    });
  }

  #ended(exit: ChannelExit): void {
    this.#exit = exit;
    this.#exited.resolve(succeed(exit));
    const failure: GuestFailure = { reason: 'channel_ended', message: 'the program ended' };
    this.#stdin.fail(failure);
    this.#controlIn.fail(failure);
  }

  #receiveKilled(frame: Extract<GuestFrame, { type: 'killed' }>): void {
    const result = frame.complete
      ? succeed({ killed: frame.killed })
      : fail('limit', 'processes are started faster than they are killed');
    for (const kill of this.#kills) kill.resolve(result);
    this.#kills = [];
  }

  #end(failure: GuestFailure, released: GuestResult<void>): void {
    this.#exited.resolve({ ok: false, failure });
    this.#stdin.fail(failure);
    this.#controlIn.fail(failure);
    for (const kill of this.#kills) kill.resolve(succeed({ killed: 0 }));
    this.#kills = [];
    this.#gone.resolve();
    this.#released.resolve(released);
  }
}
