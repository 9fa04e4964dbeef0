/** The host's end of one supervisor: starts programs over its pipes and hands each frame to the channel it is for. */
import type { Readable, Writable } from 'node:stream';
import { getSystemErrorName } from 'node:util';
import type { CarriedChannel, CarriedLink } from './carried.ts';
import { Channel } from './channel.ts';
import { type Deferred, deferred, within } from './deferred.ts';
import { fail, type GuestFailure, type GuestResult, succeed } from './failure.ts';
import {
  encodeFrame,
  FrameDecoder,
  type GuestFrame,
  HOST_FRAME,
  type HostFrameType,
  WIRE_VERSION,
} from './frames.ts';
import { u32 } from './integers.ts';
import { encodeGoOn, type RestoredGuest } from './restored.ts';
import { encodeFork, encodeSpawn, type SpawnOptions } from './spawn.ts';
import { ALWAYS_AWAKE, type Wakefulness } from './wakefulness.ts';

export interface GuestPipes {
  readonly stdin: Writable;
  readonly stdout: Readable;
}

/** Who goes on with a program of a checkpoint, and hears it from then on. */
export type ClaimOptions = Pick<SpawnOptions, 'onOutput' | 'onControl' | 'manualControl'>;

export interface ForkOptions {
  readonly template: Channel;
  /** As the template understands it; at most `MAX_PREPARATION_BYTES`. */
  readonly preparation: Uint8Array;
  readonly onControl: (bytes: Uint8Array) => void;
  readonly timeoutMs: number;
}

/** The supervisor's own bounds. */
export const MAX_CHANNELS = 64;
const MAX_UNSENT_BYTES = 16 * 1024 * 1024;
const MAX_PINGS = 64;
const MAX_COUNTS = 4;
const DEFAULT_SPAWN_TIMEOUT_MS = 30_000;
/** The length of a frame that there is none of: the supervisor ends, as at the end of its input. */
const END = Buffer.alloc(4);

interface Starting {
  readonly options: Pick<SpawnOptions, 'onOutput' | 'onControl' | 'manualControl' | 'outputWindowBytes'>;
  readonly result: Deferred<GuestResult<Channel>>;
}

type AddOptions = Starting['options'] & { readonly carried?: CarriedChannel };

export class GuestLink {
  readonly #pipes: GuestPipes;
  readonly #decoder = new FrameDecoder();
  readonly #starting = new Map<number, Starting>();
  readonly #channels = new Map<number, Channel>();
  readonly #pings = new Map<string, Deferred<GuestResult<void>>>();
  readonly #ready = deferred<GuestResult<{ version: number; pid: number }>>();
  readonly #closed = deferred<GuestFailure>();
  readonly #wakefulness: Wakefulness;
  /** Of a guest that goes on from a checkpoint: its programs that nobody has claimed yet. */
  readonly #unclaimed = new Map<number, CarriedChannel>();
  #counts: Deferred<GuestResult<{ others: number }>>[] = [];
  /** While the guest stands still: what is to be sent when it goes on. */
  #held: Buffer[] | undefined;
  #heldBytes = 0;
  /** Who waits for the guest to have obeyed; it answers in order. */
  #stood: Deferred<GuestResult<void>>[] = [];
  #going: Deferred<GuestResult<void>>[] = [];
  /** Of a guest that stands still only as long as nothing is sent to it. */
  #onWanted: (() => void) | undefined;
  #failure: GuestFailure | undefined;
  #nextChannel = 1;
  #nextPing = 1;
  #isGathering = false;

  constructor(pipes: GuestPipes, wakefulness: Wakefulness = ALWAYS_AWAKE) {
    this.#pipes = pipes;
    this.#wakefulness = wakefulness;
    pipes.stdout.on('data', (bytes: Buffer) => this.#receive(bytes));
    const ended = () => this.#close({ reason: 'link_closed', message: 'the supervisor is gone' });
    pipes.stdout.on('end', ended);
    pipes.stdout.on('close', ended);
    pipes.stdout.on('error', ended);
    pipes.stdin.on('error', ended);
    pipes.stdin.on('close', ended);
  }

  /** The link to a guest that stands still, be it that it was restored from a checkpoint; its programs are claimed, then it goes on. */
  static adopt(pipes: GuestPipes, carried: CarriedLink, wakefulness?: Wakefulness): GuestLink {
    const link = new GuestLink(pipes, wakefulness);
    link.#held = [];
    link.#nextChannel = carried.next_channel;
    for (const channel of carried.channels) link.#unclaimed.set(channel.id, channel);
    return link;
  }

  /** Undefined where the checkpoint has no such program, or somebody else has claimed it. */
  claim(id: number, options: ClaimOptions): Channel | undefined {
    const carried = this.#unclaimed.get(id);
    if (carried === undefined) return undefined;
    this.#unclaimed.delete(id);
    return this.#addChannel(id, carried.pid, {
      ...options,
      ...(carried.window_bytes === undefined ? {} : { outputWindowBytes: carried.window_bytes }),
      carried,
    });
  }

  /** Whether programs are being started, or an answer is waited for that a checkpoint would cut off. */
  get isBusy(): boolean {
    return this.#starting.size > 0 || [...this.#channels.values()].some(({ isBusy }) => isBusy);
  }

  /**
   * Until `goOn` the guest gives nothing to its programs and takes nothing from them, and the programs of these channels
   * are stopped. When it resolves, all that the guest had said has been received.
   */
  async standStill(held: readonly number[], timeoutMs: number): Promise<GuestResult<void>> {
    if (this.#failure !== undefined) return { ok: false, failure: this.#failure };
    // It may be coming to rest just now, or rest: whoever wants it to stand still for something else comes first.
    this.#onWanted?.();
    if (this.#held !== undefined) return fail('limit', 'it stands still already');
    this.#wakefulness.touch();
    return this.#stand(held, timeoutMs);
  }

  /** As `standStill`, and wakes nobody; `onWanted` is called before something is sent, and has it go on. */
  async rest(onWanted: () => void, timeoutMs: number): Promise<GuestResult<void>> {
    if (this.#failure !== undefined) return { ok: false, failure: this.#failure };
    if (this.#held !== undefined) return fail('limit', 'it stands still already');
    this.#onWanted = onWanted;
    return this.#stand([], timeoutMs);
  }

  /** Of one that was adopted: from now on `onWanted` is called as by `rest`. */
  restOn(onWanted: () => void): void {
    this.#onWanted = onWanted;
  }

  async #stand(held: readonly number[], timeoutMs: number): Promise<GuestResult<void>> {
    const stopped = deferred<GuestResult<void>>();
    this.#stood.push(stopped);
    this.#write(HOST_FRAME.standStill, 0, Buffer.concat(held.map(u32)));
    this.#held = [];
    for (const channel of this.#channels.values()) channel.hold();
    const stood = await within(stopped.promise, timeoutMs, () =>
      fail('timeout', 'the supervisor did not stand still in time'),
    );
    if (stood.ok) return stood;
    // It may have obeyed all the same.
    await this.goOn(timeoutMs);
    return stood;
  }

  /** How it stands: what another host needs to go on with it. Only while the guest stands still. */
  carry(): CarriedLink {
    const channels = [...this.#channels.values()].map((channel) => channel.carry());
    return { next_channel: this.#nextChannel, channels: [...channels, ...this.#unclaimed.values()] };
  }

  /** Programs that nobody claimed are ended. */
  async goOn(timeoutMs: number, restored?: RestoredGuest): Promise<GuestResult<void>> {
    const held = this.#held;
    if (this.#failure !== undefined) return { ok: false, failure: this.#failure };
    if (held === undefined) return succeed(undefined);
    const going = deferred<GuestResult<void>>();
    this.#going.push(going);
    this.#held = undefined;
    this.#heldBytes = 0;
    this.#onWanted = undefined;
    this.#send(HOST_FRAME.goOn, 0, encodeGoOn(restored));
    for (const frame of held) this.#pipes.stdin.write(frame);
    for (const channel of this.#channels.values()) channel.goOn();
    const releases = [...this.#unclaimed].map(async ([id, { is_released }]) => {
      const channel = this.claim(id, {});
      if (!is_released) await channel?.release(DEFAULT_SPAWN_TIMEOUT_MS);
    });
    const goes = await within(going.promise, timeoutMs, () =>
      fail('timeout', 'the supervisor did not go on in time'),
    );
    if (goes.ok) await Promise.all(releases);
    return goes;
  }

  /** Resolves once; every pending call has failed by then. */
  get closed(): Promise<GuestFailure> {
    return this.#closed.promise;
  }

  ready(timeoutMs: number): Promise<GuestResult<{ version: number; pid: number }>> {
    return within(this.#ready.promise, timeoutMs, () => fail('timeout', 'the supervisor did not answer'));
  }

  async ping(timeoutMs: number): Promise<GuestResult<{ roundTripMs: number }>> {
    if (this.#failure !== undefined) return { ok: false, failure: this.#failure };
    if (this.#pings.size >= MAX_PINGS) return fail('limit', 'too many pings wait');
    const payload = u32(this.#nextPing++);
    const key = payload.toString('hex');
    const pong = deferred<GuestResult<void>>();
    this.#pings.set(key, pong);
    const sentAt = performance.now();
    this.#send(HOST_FRAME.ping, 0, payload);
    const answer = await within(
      pong.promise,
      timeoutMs,
      () => fail('timeout', 'no pong in time'),
      this.standing,
    );
    this.#pings.delete(key);
    return answer.ok ? succeed({ roundTripMs: performance.now() - sentAt }) : answer;
  }

  /** Settles when a guest that is kept from running runs again. */
  readonly standing = (): Promise<void> | undefined => this.#wakefulness.standing;

  /** Keeps the guest awake while it works on something of its own between two frames. */
  hold(): () => void {
    return this.#wakefulness.hold();
  }

  /**
   * How many processes live in the sandbox that this link did not start: what programs left in the background.
   * Asking wakes nobody: it is how to learn whether the guest may sleep.
   */
  async countOthers(timeoutMs: number): Promise<GuestResult<{ others: number }>> {
    if (this.#failure !== undefined) return { ok: false, failure: this.#failure };
    if (this.#counts.length >= MAX_COUNTS) return fail('limit', 'too many counts wait');
    const counted = deferred<GuestResult<{ others: number }>>();
    this.#counts.push(counted);
    this.#write(HOST_FRAME.census, 0);
    // Answers come in order, so one that is late still takes its place in the line.
    return within(counted.promise, timeoutMs, () => fail('timeout', 'no count in time'));
  }

  spawn(options: SpawnOptions): Promise<GuestResult<Channel>> {
    const payload = encodeSpawn(options);
    return payload.ok
      ? this.#start(HOST_FRAME.spawn, payload.value, options)
      : Promise.resolve(this.#failure === undefined ? payload : { ok: false, failure: this.#failure });
  }

  /**
   * Starts a program as a fork of one that was started with `isTemplate`, with a control pair and muted. It fails with
   * the error EPIPE where the template is gone or does not listen.
   */
  fork(options: ForkOptions): Promise<GuestResult<Channel>> {
    return this.#start(HOST_FRAME.fork, encodeFork(options.template.id, options.preparation), options);
  }

  #start(
    type: HostFrameType,
    payload: Uint8Array,
    options: Starting['options'] & { readonly timeoutMs?: number },
  ): Promise<GuestResult<Channel>> {
    if (this.#failure !== undefined) return Promise.resolve({ ok: false, failure: this.#failure });
    if (this.#channels.size + this.#starting.size >= MAX_CHANNELS)
      return Promise.resolve(fail('limit', `${MAX_CHANNELS} programs run already`));
    const id = this.#nextChannel++;
    const result = deferred<GuestResult<Channel>>();
    this.#starting.set(id, { options, result });
    this.#send(type, id, payload);
    return within(
      result.promise,
      options.timeoutMs ?? DEFAULT_SPAWN_TIMEOUT_MS,
      () => {
        const late = fail('timeout', 'the program did not start in time');
        result.resolve(late);
        return late;
      },
      this.standing,
    );
  }

  /** Ends the supervisor's input: it kills everything and exits. */
  close(): void {
    this.#close({ reason: 'link_closed', message: 'the link was closed' });
  }

  #send(type: HostFrameType, channel: number, payload?: Uint8Array): void {
    this.#onWanted?.();
    if (this.#failure !== undefined) return;
    // What stands still is woken by whoever made it stand still.
    if (this.#held === undefined) this.#wakefulness.touch();
    this.#write(type, channel, payload);
  }

  #write(type: HostFrameType, channel: number, payload?: Uint8Array): void {
    const frame = encodeFrame(type, channel, payload);
    if (this.#held === undefined) {
      this.#gather();
      this.#pipes.stdin.write(frame);
    } else {
      this.#held.push(frame);
      this.#heldBytes += frame.length;
    }
    if (this.#pipes.stdin.writableLength + this.#heldBytes > MAX_UNSENT_BYTES)
      this.#close({ reason: 'limit', message: 'the supervisor does not read' });
  }

  /** What is sent in one turn goes in one write: each write wakes the supervisor, which costs more than the frame. */
  #gather(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    this.#pipes.stdin.cork();
    process.nextTick(() => {
      this.#isGathering = false;
      this.#pipes.stdin.uncork();
    });
  }

  #receive(bytes: Buffer): void {
    if (this.#failure !== undefined) return;
    const frames = this.#decoder.push(bytes);
    if (!frames.ok) this.#close(frames.failure);
    for (const frame of frames.ok ? frames.value : []) {
      if (this.#failure !== undefined) return;
      if (!this.#dispatch(frame))
        this.#close({ reason: 'malformed_frame', message: `a frame ${frame.type} that cannot come now` });
    }
  }

  #dispatch(frame: GuestFrame): boolean {
    switch (frame.type) {
      case 'ready':
        if (frame.version !== WIRE_VERSION) return false;
        this.#ready.resolve(succeed({ version: frame.version, pid: frame.pid }));
        return true;
      case 'pong':
        this.#pings.get(Buffer.from(frame.payload).toString('hex'))?.resolve(succeed(undefined));
        return true;
      case 'counted': {
        const counted = this.#counts.shift();
        counted?.resolve(succeed({ others: frame.others }));
        return counted !== undefined;
      }
      case 'stands_still':
        return settleNext(this.#stood);
      case 'goes_on':
        return settleNext(this.#going);
      case 'spawned':
        return this.#startedOrLate(frame.channel, frame.pid);
      case 'spawn_failed':
        return this.#failedToStart(frame);
      case 'error':
        this.#close({
          reason: 'malformed_frame',
          message: `the supervisor refused a frame: ${frame.message}`,
        });
        return true;
      default: {
        const channel = this.#channels.get(frame.channel);
        if (channel === undefined) return false;
        if (frame.type === 'released') this.#channels.delete(frame.channel);
        return channel.receive(frame);
      }
    }
  }

  #startedOrLate(id: number, pid: number): boolean {
    const starting = this.#starting.get(id);
    if (starting === undefined) return false;
    this.#starting.delete(id);
    const channel = this.#addChannel(id, pid, starting.options);
    if (starting.result.settled) void channel.release(DEFAULT_SPAWN_TIMEOUT_MS);
    else starting.result.resolve(succeed(channel));
    return true;
  }

  #addChannel(id: number, pid: number, options: AddOptions): Channel {
    const { onOutput, onControl, manualControl, outputWindowBytes, carried } = options;
    const channel = new Channel({
      id,
      pid,
      send: (type, payload) => this.#send(type, id, payload),
      standing: this.standing,
      onOutput,
      onControl,
      manualControl,
      outputWindowBytes,
      ...(carried === undefined ? {} : { carried }),
    });
    this.#channels.set(id, channel);
    return channel;
  }

  #failedToStart(frame: Extract<GuestFrame, { type: 'spawn_failed' }>): boolean {
    const starting = this.#starting.get(frame.channel);
    if (starting === undefined) return false;
    this.#starting.delete(frame.channel);
    const known = frame.errno > 0 && frame.errno < 134;
    const errno = known ? getSystemErrorName(-frame.errno) : 'EIO';
    starting.result.resolve(fail('spawn_failed', frame.message, errno));
    return true;
  }

  #close(failure: GuestFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    this.#tellEnd();
    this.#pipes.stdin.destroy();
    this.#pipes.stdout.destroy();
    const failed = { ok: false, failure } as const;
    this.#ready.resolve(failed);
    for (const pong of this.#pings.values()) pong.resolve(failed);
    for (const counted of this.#counts) counted.resolve(failed);
    for (const waiting of [...this.#stood, ...this.#going]) waiting.resolve(failed);
    for (const starting of this.#starting.values()) starting.result.resolve(failed);
    for (const channel of this.#channels.values()) channel.fail(failure);
    this.#pings.clear();
    this.#counts = [];
    this.#starting.clear();
    this.#channels.clear();
    this.#closed.resolve(failure);
  }

  /** It sees no end of its input where somebody keeps our end of it. Where it does not read, it is killed a moment later. */
  #tellEnd(): void {
    const { stdin } = this.#pipes;
    stdin.uncork();
    stdin.write(END);
  }
}

function settleNext(waiting: Deferred<GuestResult<void>>[]): boolean {
  const next = waiting.shift();
  next?.resolve(succeed(undefined));
  return next !== undefined;
}
